package dispatcher_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// rawCaller speaks the callers' protocol frame by frame.
type rawCaller struct{ tr *transport.Session }

func newRawCaller(t *testing.T, addr string, tc *tls.Config, dial dialFunc) rawCaller {
	t.Helper()
	nc := must[net.Conn](t)(dial(t.Context(), addr))
	conn := must[*transport.Conn](t)(transport.Client(t.Context(), nc, tc, transport.ProtocolCall, transport.RoleDispatcher))
	tr := must[*transport.Session](t)(conn.Opener(t.Context(), transport.Options{MaxFrame: wire.MaxBody}))
	go tr.Serve(nil) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { tr.Close(nil) })
	control := tr.Control()
	if err := control.Send(wire.TypeHello, false, wire.Encode(wire.Hello{Version: wire.Version})); err != nil {
		t.Fatal(err)
	}
	if f := must[transport.Frame](t)(control.Receive(t.Context())); f.Type != wire.TypeWelcome {
		t.Fatalf("welcome is frame %d", f.Type)
	}
	return rawCaller{tr}
}

// ask sends one request and returns the answer, without the chunks before it.
func (c rawCaller) ask(ctx context.Context, typ transport.Type, body []byte) (transport.Frame, error) {
	x, err := c.tr.Exchange()
	if err != nil {
		return transport.Frame{}, err
	}
	defer x.Release()
	if err := x.Send(typ, true, body); err != nil {
		return transport.Frame{}, err
	}
	for {
		if f, err := x.Receive(ctx); err != nil || f.Type != wire.TypeChunk {
			return f, err
		}
	}
}

// What is hostile on the port ends its own session; others do not notice, and
// memory stays flat.
func TestHostileBytesOnThePort(t *testing.T) {
	t.Parallel()
	sys := newSystem(t, loopback, nil, dispatcher.Config{})
	g := newGate()
	sys.agent("web01", g.register)
	job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "gate", harp.Args{"name": "x"}))
	<-g.entered

	addr, tc, dial := sys.net.dial("dispatcher", "attacker", transport.RoleCaller)
	before := allocated()
	var attacks sync.WaitGroup
	for _, bytes := range hostileBytes() {
		attacks.Go(func() { // before the handshake
			nc, err := dial(t.Context(), addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_, _ = nc.Write(bytes) // it may be closed already
			expectClosed(t, nc)
		})
		attacks.Go(func() { // after the handshake: not yamux
			conf := tc.Clone()
			conf.NextProtos = []string{transport.ProtocolCall}
			conf.InsecureSkipVerify = true // the test is about the other side
			nc, err := tls.Dial("tcp", addr, conf)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_, _ = nc.Write(bytes)
			expectClosed(t, nc)
		})
	}
	for _, body := range hostileBodies() {
		raw := newRawCaller(t, addr, tc, dial)
		f, err := raw.ask(t.Context(), wire.TypeSubmit, body)
		if err == nil && f.Type != wire.TypeFailed {
			t.Errorf("body % .10x is answered by frame %d", body, f.Type)
		}
	}
	attacks.Wait()
	if grown := allocated() - before; grown > 256<<20 {
		t.Errorf("allocated %d MiB", grown>>20)
	}

	g.release <- struct{}{}
	if v := must[harp.Value](t)(job.Get(t.Context())); v.String() != `"released"` {
		t.Errorf("the session beside returned %s", v)
	}
}

func hostileBytes() [][]byte {
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * 7)
	}
	return [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},  // a stream opened with a window of 4 GiB
		{22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xff, 0, 0, 0}, // a TLS record that is too long, and a whole header of yamux: one that is cut is waited for
		big,
	}
}

func hostileBodies() [][]byte {
	deep := make([]byte, 1<<20)
	for i := range deep {
		deep[i] = 0x91
	}
	return [][]byte{
		{0xdd, 0x02, 0x00, 0x00, 0x00}, // array32 of 33 M
		{0xdf, 0x02, 0x00, 0x00, 0x00}, // map32
		{0xdb, 0x7f, 0xff, 0xff, 0xff}, // str32 of 2 GiB
		{0xc6, 0x7f, 0xff, 0xff, 0xff}, // bin32
		{0xc9, 0x7f, 0xff, 0xff, 0xff}, // ext32
		deep,
		make([]byte, 5<<20), // longer than any SUBMIT
		wire.Encode(harp.Submission{Request: deep}),
		wire.Encode(harp.Submission{Request: []byte{0xc1}}),
		wire.Encode(harp.Submission{Request: wire.Encode(map[string]any{"v": 99})}),
	}
}

// expectClosed reads until the other side closes.
func expectClosed(t *testing.T, nc net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := nc.Read(buf); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the connection is still open")
			}
			return
		}
	}
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// An agent that takes back a start that it has told of breaks the protocol: its job
// must not run for ever, without anybody who will hear of its end.
func TestAStartIsNotTakenBack(t *testing.T) {
	for _, word := range []transport.Type{wire.TypeNotNow, wire.TypeRefused} {
		inVirtualTime(t, func(t *testing.T, sys *system) {
			agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
			asked := agent.exchanges(t)
			synctest.Wait()
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "work", nil))
			m := <-asked
			m.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
			synctest.Wait()
			body := any(wire.NotNow{Reason: wire.NotNowBusy})
			if word == wire.TypeRefused {
				body = wire.Refused{Failure: failures.New("rejected", "no").Err()}
			}
			m.sendFrame(t, word, true, body)
			<-agent.tr.Done()
			must[*rawAgent](t)(sys.greetRaw(t.Context(), wire.Hello{Version: wire.Version, Instance: "i", Journal: "j"}))
			r := must[harp.Result](t)(job.Wait(t.Context()))
			if r.State != harp.StateLost {
				t.Errorf("it is %s", r.State)
			}
		})
	}
}
