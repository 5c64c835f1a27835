package transport

import (
	"context"
	"net"
)

// Network is a network in memory.
type Network struct{}

// NewNetwork returns a network without listeners.
func NewNetwork() *Network { panic("todo") }

// Listen returns a listener at addr whose end of each connection is id.
func (n *Network) Listen(addr string, id Identity) (net.Listener, error) { panic("todo") }

// Dialer returns a function that connects to a listener of n as id.
func (n *Network) Dialer(id Identity) func(ctx context.Context, addr string) (net.Conn, error) {
	panic("todo")
}
