package memnet_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/memnet"
)

var (
	agentID      = transport.Identity{Fleet: "test.example", Role: transport.RoleAgent, Name: "web01"}
	dispatcherID = transport.Identity{Fleet: "test.example", Role: transport.RoleDispatcher, Name: "main"}
)

func TestNetwork(t *testing.T) {
	n := memnet.New()
	dial := n.Dialer(agentID)
	if _, err := dial(t.Context(), "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := n.Listen("a:1", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("a:1", dispatcherID); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := n.Listen("b:1", transport.Identity{}); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("a listener that is nobody: %v", err)
	}
	if _, err := n.Dialer(transport.Identity{})(t.Context(), "a:1"); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("a dialler that is nobody: %v", err)
	}
	nc, err := dial(t.Context(), "a:1")
	if err != nil {
		t.Fatal(err)
	}
	if l.Addr().String() != "a:1" || nc.RemoteAddr().String() != "a:1" || nc.LocalAddr().Network() != "memory" {
		t.Errorf("addresses %v, %v, %v", l.Addr(), nc.RemoteAddr(), nc.LocalAddr())
	}
	if _, err := nc.Write([]byte("x")); err == nil {
		t.Error("bytes were written without a session")
	}
	_ = l.Close()
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if _, err := dial(t.Context(), "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := transport.Client(t.Context(), nc, nil, transport.ProtocolAgent, transport.RoleDispatcher); !errors.Is(err, transport.ErrHandshake) {
		t.Errorf("a connection nobody accepted: %v", err)
	}
	if l, err = n.Listen("a:1", dispatcherID); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
	_ = l.Close()
}

// A full accept queue makes the dialler wait.
func TestNetworkQueue(t *testing.T) {
	n := memnet.New()
	l, err := n.Listen("a:1", dispatcherID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		_, err = n.Dialer(agentID)(ctx, "a:1")
		if err != nil {
			break
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v", err)
	}
}
