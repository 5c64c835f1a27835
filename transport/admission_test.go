package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func TestNetworkOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.77":             "192.0.2.0/24",
		"::ffff:192.0.2.77":      "192.0.2.0/24",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::/64",
		"fe80::1%eth0":           "fe80::/64",
		"web01":                  "web01",
		"":                       "",
		"192.0.2.77.example.com": "192.0.2.77.example.com",
	} {
		if got := networkOf(addr); got != want {
			t.Errorf("%s is in %s, want %s", addr, got, want)
		}
	}
}

// TestGreetedAreBounded checks that addresses are remembered, and not for ever.
func TestGreetedAreBounded(t *testing.T) {
	a := newAdmission(1, 2)
	for i := range maxGreeted + 10 {
		addr := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		nc := addressed{addr: addr + ":7"}
		if a.gateOf(addr) != a.strangers {
			t.Fatal("a stranger was known")
		}
		if a.rememberAddr(nc); a.gateOf(addr) != a.greeted {
			t.Fatal("not remembered")
		}
	}
	if len(a.addrs) != maxGreeted {
		t.Errorf("%d addresses", len(a.addrs))
	}
}

// addressed is a connection of which only the address counts.
type addressed struct {
	net.Conn
	addr string
}

func (a addressed) RemoteAddr() net.Addr { return a }
func (a addressed) Network() string      { return "tcp" }
func (a addressed) String() string       { return a.addr }

// helloOf returns the first message of a client.
func helloOf(t testing.TB) []byte {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{ProtocolAgent}}).HandshakeContext(context.Background())
	}()
	hello, err := readHello(far)
	_ = far.Close()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return hello
}

func TestReadHello(t *testing.T) {
	hello := helloOf(t)
	for name, r := range map[string]io.Reader{
		"at once":       bytes.NewReader(hello),
		"byte for byte": iotest.OneByteReader(bytes.NewReader(hello)),
		"with more":     bytes.NewReader(append(bytes.Clone(hello), "more"...)),
		"and its end":   iotest.DataErrReader(bytes.NewReader(hello)),
	} {
		if got, err := readHello(r); err != nil || !bytes.Equal(got, hello) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for n := range hello {
		if _, err := readHello(bytes.NewReader(hello[:n])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
	for name, text := range map[string]string{
		"another protocol":    "GET / HTTP/1.1\r\n\r\n",
		"an alert":            "\x15\x03\x01\x00\x02\x01\x00",
		"another message":     "\x16\x03\x01\x00\x04\x02\x00\x00\x00",
		"a message cut short": "\x16\x03\x01\x00\x06\x01\x00\x00\x05ab",
		"a short record":      "\x16\x03\x01\x00\x03\x01\x00\x00",
		"a long record":       "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc",
	} {
		if _, err := readHello(bytes.NewReader([]byte(text))); !errors.Is(err, errNoHello) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadHello checks that what is kept of a first message is what came, and bounded.
func FuzzReadHello(f *testing.F) {
	f.Add(helloOf(f))
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readHello(bytes.NewReader(b))
		if err == nil && (len(got) > 5+maxHello || !bytes.HasPrefix(b, got)) {
			t.Errorf("%d bytes of %d", len(got), len(b))
		}
	})
}

// TestWhoGivesUpHoldsNoSlot checks that a connection that has waited for its turn in vain keeps none of what it
// had got by then: others of its network would be let in ever more slowly.
func TestWhoGivesUpHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 4
		g := newGate(0.001, slots)
		n, err := g.countConn("net")
		if err != nil {
			t.Fatal(err)
		}
		waiting := &turn{of: g, name: "net", network: n}
		giveUp := func(where string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			network, all := len(n.turns), len(g.turns)
			if err := waiting.takeSlots(ctx); err == nil {
				t.Fatalf("%s: it has its turn", where)
			}
			if len(n.turns) != network || len(g.turns) != all {
				t.Errorf("%s: of its network %d have a slot, %d had, and %d of all, %d had", where, len(n.turns), network, len(g.turns), all)
			}
		}
		for range slots {
			g.turns <- struct{}{}
		}
		giveUp("no slot of all")
		for range slots {
			<-g.turns
			if err := g.rate.awaitToken(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		giveUp("no token")
		for range cap(n.turns) {
			n.turns <- struct{}{}
		}
		giveUp("no slot of the network")
	})
}
