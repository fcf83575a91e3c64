"""A model of fencing and activation: every interleaving of nodes, coordinator and faults, explored breadth first.

Read in this order: state (what there is), coordinator (what Kafka does), requests (how a node asks it, and what gets
lost), activation and writing (what a node does, one function a step, named after the design's steps), properties (what
must hold), explorer (the search), removals (the steps it can go without), cases (in which bounds it is searched).
`python -m tests.model` runs it at length. two_producers is a smaller model of its own, for two transactional ids.

What is left out, and why nothing is lost: operations, ids and locks (the model's groups are whole frames), the worker
(a mark may stand at any committed prefix; none is lost), clocks (whatever a clock decides may happen at any time).
"""
