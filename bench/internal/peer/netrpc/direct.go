// Package netrpc does the work with net/rpc.
package netrpc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/rpc"
	"sync"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Bench is the service.
type Bench struct{}

// Echo answers with what it was given.
func (Bench) Echo(in []byte, out *[]byte) error {
	*out = in
	return nil
}

// ServerRole serves.
const ServerRole = "netrpc-server"

type said struct {
	Addr string `json:"addr"`
}

// RunServer is the Role of that name.
func RunServer(ctx context.Context, l *lab.Lab, _ json.RawMessage, ready func(any) error) error {
	tc, err := l.PeerTLS()
	if err != nil {
		return err
	}
	s := rpc.NewServer()
	if err := s.Register(Bench{}); err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", tc)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.ServeConn(c) }) // the client is gone before this process is told to end
		}
	})
	if err := ready(said{listener.Addr().String()}); err != nil {
		return err
	}
	<-ctx.Done()
	err = listener.Close()
	wg.Wait()
	return err
}

// Direct makes calls over one connection.
func Direct() measure.Subject {
	return measure.Subject{
		Name: "net/rpc", Note: "gob over TLS, server in a second process; has no cancelling and no flow control",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			c, err := connect(ctx, l, &parts)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewEcho(func(context.Context) (out []byte, err error) {
				err = c.Call("Bench.Echo", measure.Payload, &out)
				return out, err
			}, parts.Close), nil
		},
	}
}

func connect(ctx context.Context, l *lab.Lab, parts *lab.Closers) (*rpc.Client, error) {
	var s said
	p, err := l.Start(ctx, ServerRole, nil, &s)
	if err != nil {
		return nil, err
	}
	parts.Add(p.Close)
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	conn, err := tls.Dial("tcp", s.Addr, tc)
	if err != nil {
		return nil, err
	}
	c := rpc.NewClient(conn)
	parts.Add(c.Close)
	return c, nil
}
