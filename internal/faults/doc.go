// Package faults does to harp what the world does to it, with real processes, real
// disks and real sockets on loopback, and checks afterwards that what it promised
// held: no acknowledged call lost, nothing started twice, what cannot be known
// called lost.
//
// What happened is known from outside harp. [history] has the caller's side:
// which calls were made, acknowledged and seen in which state. [witness] is a file
// to which the procedures write that they begin and end: the truth about
// executions. The processes are [actor]; what lies between them is [proxy].
//
// The tests have a short form, for every run, and a long one, with HARP_FAULTS=long,
// whose figures are written where HARP_FAULTS_REPORT says. HARP_FAULTS_SEED repeats a
// run's choices, and HARP_FAULTS_HOSTS says how many hosts batches have in the long form, in 20 processes at most. They need Linux.
package faults
