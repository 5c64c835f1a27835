package transport_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/harpcaller/harp/transport"
)

// benchSession returns a session over TLS loopback that is served by handle.
func benchSession(b *testing.B, w wiring, handle func(*transport.Exchange, transport.Frame)) *transport.Session {
	b.Helper()
	e := w.connect(b, transport.Options{}, transport.Options{})
	e.serve(b, handle)
	return e.opener
}

// answer sends one frame back.
func answer(x *transport.Exchange, f transport.Frame) {
	_ = x.Send(f.Type, true, f.Body)
}

// BenchmarkRoundTrip measures exchanges of 100 B each way.
func BenchmarkRoundTrip(b *testing.B) {
	for _, w := range []wiring{{name: "memory", memory: true, openerDials: true}, {name: "tls", openerDials: true}} {
		for _, flight := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/%d", w.name, flight), func(b *testing.B) {
				s := benchSession(b, w, answer)
				b.ResetTimer()
				inFlight(b, flight, func() error { return roundTrip(b.Context(), s) })
			})
		}
	}
}

var body100 = bin(98)

func roundTrip(ctx context.Context, s *transport.Session) error {
	x, err := s.Exchange()
	if err != nil {
		return err
	}
	defer x.Release()
	if err := x.Send(1, true, body100); err != nil {
		return err
	}
	_, err = x.Receive(ctx)
	return err
}

// inFlight runs f b.N times in n goroutines.
func inFlight(b *testing.B, n int, f func() error) {
	b.Helper()
	b.ReportAllocs()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkPlainYamux is what BenchmarkRoundTrip is measured against: the same
// bytes over the same TLS, on kept streams of yamux without anything between.
func BenchmarkPlainYamux(b *testing.B) {
	for _, flight := range []int{1, 256} {
		b.Run(fmt.Sprintf("tls/%d", flight), func(b *testing.B) {
			streams := plainStreams(b, flight)
			b.ResetTimer()
			inFlight(b, flight, func() error {
				st := <-streams
				defer func() { streams <- st }()
				return plainTrip(st)
			})
		})
	}
}

// plainStreams opens n streams to a peer that sends back what it gets.
func plainStreams(b *testing.B, n int) chan io.ReadWriter {
	b.Helper()
	oc, ac := wiring{openerDials: true}.conns(b)
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	config.EnableKeepAlive = false
	client, err := yamux.Client(transport.NetConn(oc), config)
	if err != nil {
		b.Fatal(err)
	}
	server, err := yamux.Server(transport.NetConn(ac), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	go plainServe(server)
	streams := make(chan io.ReadWriter, n)
	for range n {
		st, err := client.OpenStream()
		if err != nil {
			b.Fatal(err)
		}
		streams <- st
	}
	return streams
}

func plainServe(s *yamux.Session) {
	for {
		st, err := s.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			for plainAnswer(st) == nil {
			}
		}()
	}
}

func plainTrip(st io.ReadWriter) error {
	if err := plainSend(st, body100); err != nil {
		return err
	}
	_, err := plainReceive(st)
	return err
}

func plainAnswer(st io.ReadWriter) error {
	body, err := plainReceive(st)
	if err != nil {
		return err
	}
	return plainSend(st, body)
}

func plainSend(w io.Writer, body []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, transport.HeaderSize+len(body)), uint32(len(body)))
	b = append(b, 1, 0, 0, 0, 1)
	_, err := w.Write(append(b, body...))
	return err
}

func plainReceive(r io.Reader) ([]byte, error) {
	var h [transport.HeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(h[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

// BenchmarkOneWay measures frames of 100 B sent in one exchange.
func BenchmarkOneWay(b *testing.B) {
	for _, w := range []wiring{{name: "memory", memory: true, openerDials: true}, {name: "tls", openerDials: true}} {
		b.Run(w.name, func(b *testing.B) {
			s := benchSession(b, w, func(x *transport.Exchange, f transport.Frame) {
				var err error
				for ; err == nil && !f.End; f, err = x.Receive(b.Context()) {
				}
				_ = x.Send(1, true, nil)
			})
			x, err := s.Exchange()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(body100)))
			b.ResetTimer()
			for i := range b.N {
				if err := x.Send(1, i == b.N-1, body100); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := x.Receive(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
