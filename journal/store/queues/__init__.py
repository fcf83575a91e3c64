"""The state of queues in memory: order, holds, deadlines, and references that are paged out."""
