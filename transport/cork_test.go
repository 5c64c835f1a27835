package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/harpcaller/harp/transport"
)

// countedConn counts its writes, and fails them once it is broken.
type countedConn struct {
	net.Conn
	writes atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		return 0, errBroken
	}
	return c.Conn.Write(p)
}

// heardBytes is all that came over a connection until it ended, and why it ended.
type heardBytes struct {
	all []byte
	err error
}

// counted makes a connection over TLS whose writes beneath are counted.
func counted(t *testing.T) (net.Conn, *countedConn, <-chan heardBytes) {
	t.Helper()
	ours := newCerts(t)
	nc, ns := loopback(t)
	beneath := &countedConn{Conn: nc}
	heard := make(chan heardBytes, 1)
	go func() {
		c, err := transport.Server(t.Context(), ns, ours.leaf(t, dispatcherID, nil), allowAgents)
		if err != nil {
			heard <- heardBytes{err: err}
			return
		}
		defer c.Close()
		all, err := io.ReadAll(transport.NetConn(c))
		heard <- heardBytes{all, err}
	}()
	c, err := transport.Client(t.Context(), beneath, ours.leaf(t, agentID, nil), transport.ProtocolAgent, transport.RoleDispatcher)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return transport.NetConn(c), beneath, heard
}

// TestLongWrites: what is written in one piece leaves in one piece, and in order.
func TestLongWrites(t *testing.T) {
	c, beneath, heard := counted(t)
	var sent []byte
	for i, n := range []int{256 << 10, 1, 16 << 10, 16<<10 + 1, 100, 64 << 10, 200 << 10, 5} {
		before := beneath.writes.Load()
		piece := bytes.Repeat([]byte{byte(i)}, n)
		if k, err := c.Write(piece); k != n || err != nil {
			t.Fatal(k, err)
		}
		if took := beneath.writes.Load() - before; took != 1 {
			t.Errorf("%d bytes took %d writes", n, took)
		}
		sent = append(sent, piece...)
	}
	_ = c.Close()
	if got := <-heard; got.err != nil || !bytes.Equal(got.all, sent) {
		t.Errorf("%d bytes arrived of %d, %v", len(got.all), len(sent), got.err)
	}
}

// TestLongWriteFails: a long write does not end well where the connection has failed.
func TestLongWriteFails(t *testing.T) {
	c, beneath, _ := counted(t)
	beneath.broken.Store(true)
	for _, n := range []int{64 << 10, 1} {
		if _, err := c.Write(make([]byte, n)); !errors.Is(err, errBroken) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
