// Package redis does the work with Redis, and with asynq on it.
package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// ServerRole keeps a Redis.
const ServerRole = "redis"

type serverArg struct {
	Dir string `json:"dir"`
}

type said struct {
	Addr string `json:"addr"`
}

// RunServer is the Role of that name.
func RunServer(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg serverArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	port, err := lab.FreePort()
	if err != nil {
		return err
	}
	d := lab.Daemon{
		Name: "redis-server", Install: "apt-get install redis-server, or your system's package of Redis 7",
		Args: []string{
			"--port", "0", "--tls-port", strconv.Itoa(port), "--bind", "127.0.0.1",
			"--tls-cert-file", l.Path(lab.ServerCert), "--tls-key-file", l.Path(lab.ServerKey),
			"--tls-ca-cert-file", l.Path(lab.CACert), "--tls-protocols", "TLSv1.3",
			"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", arg.Dir,
		},
		Ready: func(ctx context.Context) error { return lab.Answers(ctx, port) },
	}
	return d.Run(ctx, func() error { return ready(said{fmt.Sprintf("127.0.0.1:%d", port)}) })
}

// start starts a Redis in a directory of its own.
func start(ctx context.Context, l *lab.Lab, parts *lab.Closers) (addr string, err error) {
	if _, err := (lab.Daemon{Name: "redis-server", Install: "apt-get install redis-server"}).Find(); err != nil {
		return "", err
	}
	dir, err := l.Fresh("redis")
	if err != nil {
		return "", err
	}
	var s said
	c, err := l.Start(ctx, ServerRole, serverArg{dir}, &s)
	if err != nil {
		return "", err
	}
	parts.Add(c.Close)
	return s.Addr, nil
}

// connect connects a client.
func connect(l *lab.Lab, parts *lab.Closers, addr string) (*redis.Client, error) {
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: tc, ReadTimeout: -1})
	parts.Add(c.Close)
	return c, nil
}
