"""Queues in memory: order, holds, deadlines and pages."""
