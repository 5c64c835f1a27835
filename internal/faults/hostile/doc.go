// Package hostile tells lies to harp: to processes of a dispatcher and of an agent, by
// peers that speak TLS, streams, frames and msgpack, but not the truth. The peers are
// written from docs/protocol.md and share no code with harp's own, so that they can
// send what those never would.
//
// Each lie is a row of a table: who tells it, and what it says. For all of them the same
// must hold. The process lives; its memory stays within a bound above what it has at rest;
// calls of an honest caller go through meanwhile; and afterwards everything is as before.
//
// The tests have a short form, for every run, and a long one, with HARP_FAULTS=long, which
// has every lie for ten seconds and measures what it does to the honest caller.
// HARP_HOSTILE_ALONE=NAME tells one lie alone, HARP_HOSTILE_FOR=1h all of them at once,
// again and again. They need Linux.
package hostile
