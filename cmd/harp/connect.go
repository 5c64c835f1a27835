package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/client"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/transport"
)

// retryFor is how long a command asks again when the dispatcher goes away: a
// person waits for it.
const retryFor = 5 * time.Second

// connection is what the flags say of the dispatcher to ask. Flags go before
// environment, environment before the context's file.
type connection struct {
	context, addr, cert, key, ca string
}

func (t *connection) bind(flags *pflag.FlagSet) {
	flags.StringVar(&t.context, "context", "", "`name` of the context to use instead of the current one (HARP_CONTEXT)")
	flags.StringVar(&t.addr, "addr", "", "`host:port` of the dispatcher, instead of the context's (HARP_ADDR)")
	flags.StringVar(&t.cert, "cert", "", "`file` of the caller's certificate (HARP_CERT)")
	flags.StringVar(&t.key, "key", "", "`file` of its key (HARP_KEY)")
	flags.StringVar(&t.ca, "ca", "", "`file` of the authorities to trust (HARP_CA)")
}

// resolve decides which dispatcher is meant.
func (c *cli) resolve() (contexts.Context, error) {
	t, env := c.connection, c.env
	given := contexts.Context{
		Addr: cmp.Or(t.addr, env("HARP_ADDR")),
		Cert: cmp.Or(t.cert, env("HARP_CERT")),
		Key:  cmp.Or(t.key, env("HARP_KEY")),
		CA:   cmp.Or(t.ca, env("HARP_CA")),
	}
	named, err := c.namedContext()
	if err != nil {
		return given, err
	}
	given.Addr = cmp.Or(given.Addr, named.Addr)
	given.Cert = cmp.Or(given.Cert, named.Cert)
	given.Key = cmp.Or(given.Key, named.Key)
	given.CA = cmp.Or(given.CA, named.CA)
	if given.Addr == "" || given.Cert == "" || given.Key == "" || given.CA == "" {
		return given, plainInvalid("context", "no context configured; start a dispatcher with `harp dev`, or give --addr, --cert, --key and --ca")
	}
	return given, nil
}

// namedContext is the context that is named, or the current one, or an empty one.
func (c *cli) namedContext() (contexts.Context, error) {
	name := cmp.Or(c.connection.context, c.env("HARP_CONTEXT"))
	dir, err := contexts.Find(c.env)
	if err != nil && name == "" {
		return contexts.Context{}, nil // the flags may do without
	}
	if err != nil {
		return contexts.Context{}, err
	}
	if name == "" {
		if name, err = dir.Current(); err != nil || name == "" {
			return contexts.Context{}, err
		}
	}
	return dir.Get(name)
}

// dialContext connects to a context's dispatcher.
func dialContext(ctx context.Context, to contexts.Context) (*harp.Caller, error) {
	tc, err := loadTLS(to)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, to.Addr, client.Config{TLS: tc, RetryFor: retryFor, Logger: quiet})
}

// loadTLS reads the files of a context, which flags or the environment may have named instead. Errors: harp.ErrInvalid.
func loadTLS(of contexts.Context) (*tls.Config, error) {
	tc, err := transport.LoadTLS(of.Cert, of.Key, of.CA)
	if err != nil {
		return nil, plainInvalid("context", "%s", strings.TrimPrefix(err.Error(), "transport: "))
	}
	return tc, nil
}

// withCaller runs fn with a connection to the dispatcher.
func (c *cli) withCaller(ctx context.Context, fn func(*harp.Caller) error) error {
	to, err := c.resolve()
	if err != nil {
		return err
	}
	caller, err := c.dial(ctx, to)
	if err != nil {
		return err
	}
	defer caller.Close()
	return fn(caller)
}

// plainError is an error of a field that nobody gave, such as of the context if there is none: people are not told that it is invalid.
type plainError struct{ forPrograms *harp.FieldError }

func plainInvalid(field, format string, a ...any) error {
	return &plainError{&harp.FieldError{Field: field, Message: fmt.Sprintf(format, a...)}}
}

func (e *plainError) Error() string { return e.forPrograms.Message }

// Unwrap returns the harp.FieldError that programs are told.
func (e *plainError) Unwrap() error { return e.forPrograms }
