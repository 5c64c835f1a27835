// Command bench measures harp beside what a user would pick instead, in one run on
// one machine, and prints ratios.
//
//	bench -list                       what can be measured
//	bench -quick                      all of it, in short, to see that it works
//	bench -run durable-job -rounds 9  one workload; what matches nothing is an error
//	bench -json results.json -page ../docs/performance.md
//	bench -from results.json          the report of an earlier run
//
// All connections are TLS 1.3 over loopback, all disks real ones in -dir, and what is
// called durable is synced before it is acknowledged. A payload has 100 bytes, in and
// out, unless a workload says otherwise. The subjects of a workload take turns, round
// by round. What is printed is the median of the rounds, the least and the most, and
// the ratio of harp to each other subject, which is made within a round.
//
// Redis and PostgreSQL are started here, with data in -dir and TLS. Nothing is
// installed: a subject whose server is not there says so, and the others are
// measured. On Debian: apt-get install redis-server postgresql.
//
// The module is one of its own so that harp's users do not get the peers with it.
package main
