// Package client reaches dispatchers and agents over the network. [Dial] returns a
// harp.Caller whose requests travel to a dispatcher, through lost connections and restarts
// of it; [DialAgent] calls one agent without a dispatcher between.
package client
