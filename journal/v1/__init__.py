"""Generated from journal.proto by `make proto`: the protobuf module and the descriptor set."""
