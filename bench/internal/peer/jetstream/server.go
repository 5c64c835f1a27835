// Package jetstream does the work with NATS and its JetStream.
package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// The processes of this package.
const (
	ServerRole     = "nats-server"
	RespondersRole = "nats-responders"
)

type serverArg struct {
	Dir  string `json:"dir,omitempty"`  // of JetStream; "": without it
	Lazy bool   `json:"lazy,omitempty"` // sync now and then, not always

	Responder bool `json:"responder,omitempty"` // answer requests, too

	Collector lab.Collector `json:"collector,omitempty"`
}

type said struct {
	URL string `json:"url"`
}

// startWithin bounds the start of a server.
const startWithin = 20 * time.Second

// RunServer is the Role of that name: the server as a library.
func RunServer(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg serverArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	defer arg.Collector.Set()()
	tc, err := l.PeerTLS()
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		TLS: true, TLSVerify: true, TLSConfig: tc, TLSTimeout: 30,
		JetStream: arg.Dir != "", StoreDir: arg.Dir, SyncAlways: !arg.Lazy,
		MaxPending: 256 << 20,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(startWithin) {
		return errors.New("nats-server did not start")
	}
	var parts lab.Closers
	if arg.Responder {
		if err := respond(l, &parts, s.ClientURL()); err != nil {
			return parts.Unless(err)
		}
	}
	if err := ready(said{s.ClientURL()}); err != nil {
		return parts.Unless(err)
	}
	<-ctx.Done()
	return parts.Close()
}

// startServer starts a server in a process of its own.
func startServer(ctx context.Context, l *lab.Lab, parts *lab.Closers, arg serverArg) (url string, err error) {
	var s said
	c, err := l.Start(ctx, ServerRole, arg, &s)
	if err != nil {
		return "", err
	}
	parts.Add(c.Close)
	return s.URL, nil
}

// connect connects a client.
func connect(l *lab.Lab, parts *lab.Closers, url string) (*nats.Conn, error) {
	nc, err := dial(l, url)
	if err != nil {
		return nil, err
	}
	parts.Add(func() error { nc.Close(); return nil })
	return nc, nil
}

func dial(l *lab.Lab, url string) (*nats.Conn, error) {
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	return nats.Connect(url, nats.Secure(tc), nats.Timeout(startWithin))
}

// inFlight is how much may be published and not acknowledged.
const inFlight = 16384

// jetStream starts a server with JetStream in a fresh directory and connects to it twice: one connection
// submits and one works.
func jetStream(ctx context.Context, l *lab.Lab, parts *lab.Closers, arg serverArg) (submitter, worker jetstream.JetStream, err error) {
	if arg.Dir, err = l.Fresh("jetstream"); err != nil {
		return nil, nil, err
	}
	url, err := startServer(ctx, l, parts, arg)
	if err != nil {
		return nil, nil, err
	}
	if submitter, err = streams(l, parts, url); err != nil {
		return nil, nil, err
	}
	worker, err = streams(l, parts, url)
	return submitter, worker, err
}

func streams(l *lab.Lab, parts *lab.Closers, url string) (jetstream.JetStream, error) {
	nc, err := connect(l, parts, url)
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
}
