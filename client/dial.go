package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// Config is how to reach a dispatcher or an agent. Its zero value works on a network
// without certificates; a zero field means its default.
type Config struct {
	// TLS has the caller's certificate and, in RootCAs, the authority of the fleet.
	// No ServerName is needed: peers are known by the identity in their certificate.
	TLS *tls.Config

	// Token is sent in the caller's hello. Reserved: no dispatcher asks for it yet.
	Token string

	// Logger gets lost and regained connections. Default: slog.Default().
	Logger *slog.Logger

	// RetryFor is how long a request is tried again while there is no connection.
	// Default 30 s; negative: not at all. Get, Wait and Follow are only ended by
	// their ctx. It means nothing to DialAgent.
	RetryFor time.Duration

	// Dial opens connections; addr is given to it as Dial or DialAgent got it.
	// Default: TCP, with the port 7440, or 7442 of agents, where addr has none.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	// dialTime is how long one attempt to connect may take.
	dialTime = 10 * time.Second
	// leastBeat is the shortest heartbeat that a peer can ask for.
	leastBeat = 100 * time.Millisecond
	// retryFor is the default of Config.RetryFor.
	retryFor = 30 * time.Second
)

func (c Config) withDefaults(port string) Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.RetryFor = cmp.Or(c.RetryFor, retryFor)
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", wire.WithPort(addr, port))
		}
	}
	return c
}

// Dial connects to the dispatcher at addr, a host with or without a port. It tries
// once, for at most 10 s. From then on the Caller connects again by itself whenever
// it must, and asks again what was not answered: requests until their ctx ends or
// Config.RetryFor has passed without a connection, Get, Wait and Follow until their
// ctx ends. Calls made together are sent 128 at a time, the next when one is stored. A
// Caller that waits for more than 4,096 answers at a time gets ErrRefused.
//
// Errors: a *HostError, which says at which stage the dispatcher could not be
// reached. It is ErrDenied when one side does not accept who the other is, and else
// ErrUnavailable.
func Dial(ctx context.Context, addr string, cfg Config) (*harp.Caller, error) {
	cfg = cfg.withDefaults(wire.DispatcherPort)
	d := door{
		addr: addr, cfg: cfg, protocol: transport.ProtocolCall, role: transport.RoleDispatcher,
		away: harp.ErrUnavailable, instance: harp.NewID(),
	}
	first, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	return harp.NewCaller(newRemote(d, first)), nil
}

// door is where and as what to knock: what every attempt to connect needs.
type door struct {
	addr     string
	cfg      Config
	protocol string
	role     transport.Role
	away     error // what it is when nobody answers
	instance string
}

// session is a connection whose greeting is done.
type session struct {
	*transport.Session
	welcome    wire.Welcome
	reading    sync.WaitGroup // who reads it; what is heard is taken in there
	submitting chan struct{}  // a slot for each submission that has no answer yet
}

// open connects and greets, once. The error is a *HostError.
func (d door) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	nc, err := d.cfg.Dial(ctx, d.addr)
	if err != nil {
		return nil, d.failed(dialStage(err), d.away, err)
	}
	conn, err := transport.Client(ctx, nc, d.cfg.TLS, d.protocol, d.role)
	if err != nil {
		return nil, d.handshakeFailed(err)
	}
	ts, err := conn.Opener(ctx, transport.Options{Logger: d.cfg.Logger, MaxFrame: wire.MaxBody})
	if err != nil {
		conn.Close() //nolint:errcheck // why there is no session is what counts
		return nil, d.failed("auth", d.away, err)
	}
	s := &session{Session: ts, submitting: make(chan struct{}, maxSubmitting)}
	s.reading.Go(func() { ts.Serve(nil) }) //nolint:errcheck // the session's own Err says why
	if err := d.greet(ctx, s); err != nil {
		s.close(nil)
		return nil, err
	}
	return s, nil
}

// close ends the session, and returns when nobody reads it any more.
func (s *session) close(reason error) {
	s.Close(reason)
	s.reading.Wait()
}

// causeError is a condition with its cause: it is both and prints the cause.
type causeError struct{ is, cause error }

func (e *causeError) Error() string   { return e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.is, e.cause} }

func dialStage(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return "lookup"
	}
	return "dial"
}

// failed is the error of a stage.
func (d door) failed(stage string, is, cause error) error {
	return &harp.HostError{Host: d.addr, Stage: stage, Err: &causeError{is, cause}}
}

// handshakeFailed tells the network's troubles from a peer that is not who it must
// be and from one that does not accept who this side is.
func (d door) handshakeFailed(err error) error {
	if errors.Is(err, transport.ErrIdentity) || isCertificateAlert(err) {
		return d.failed("auth", harp.ErrDenied, err)
	}
	var handshake *transport.HandshakeError
	if errors.As(err, &handshake) {
		err = handshake.Err // where and at which stage is said by the HostError
	}
	return d.failed("tls", d.away, err)
}

// isCertificateAlert reports whether err is the peer's answer to this side's
// certificate. crypto/tls has no type for what a peer says, only for its text.
func isCertificateAlert(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	const ( // of RFC 8446
		badCertificate, accessDenied, unknownAuthority = 42, 49, 48
		unknownCertificate, certificateRequired        = 46, 116
	)
	for a := tls.AlertError(badCertificate); a <= unknownCertificate; a++ {
		if remote.Err.Error() == a.Error() {
			return true
		}
	}
	for _, a := range []tls.AlertError{accessDenied, unknownAuthority, certificateRequired} {
		if remote.Err.Error() == a.Error() {
			return true
		}
	}
	return false
}

// greet is the beginning of a session: hello, welcome and the heartbeat.
func (d door) greet(ctx context.Context, s *session) error {
	control := s.Control()
	hello := wire.Hello{Version: wire.Version, Software: harp.Software, Instance: d.instance, Token: d.cfg.Token}
	err := control.Send(wire.TypeHello, false, wire.Encode(hello))
	if err != nil && !errors.Is(err, transport.ErrSessionClosed) {
		return d.failed("auth", d.away, err)
	}
	f, err := control.Receive(ctx) // why this side is not welcome is there after the session, too
	if err != nil {
		return d.failed("auth", d.away, err)
	}
	if s.welcome, err = d.answer(f); err != nil {
		return err
	}
	if every := time.Duration(s.welcome.Heartbeat); every > 0 {
		s.Beat(max(every, leastBeat))
	}
	return nil
}

// answer reads what the peer says to hello.
func (d door) answer(f transport.Frame) (wire.Welcome, error) {
	switch f.Type {
	case wire.TypeWelcome:
		var w wire.Welcome
		if err := wire.Decode(f.Body, &w); err != nil {
			return w, d.failed("auth", d.away, err)
		}
		if w.Version != wire.Version {
			return w, d.failed("auth", d.away, fmt.Errorf("it speaks version %d, this side %d", w.Version, wire.Version))
		}
		return w, nil
	case wire.TypeUnwelcome:
		return wire.Welcome{}, d.unwelcome(f.Body)
	}
	return wire.Welcome{}, d.failed("auth", d.away, fmt.Errorf("frame type %d instead of a welcome", f.Type))
}

func (d door) unwelcome(body []byte) error {
	var w wire.Unwelcome
	if err := wire.Decode(body, &w); err != nil {
		return d.failed("auth", d.away, err)
	}
	if w.Failure == nil {
		return d.failed("auth", d.away, errors.New("unwelcome without an error"))
	}
	if errors.Is(w.Failure, harp.ErrDenied) {
		return &harp.HostError{Host: d.addr, Stage: "auth", Err: w.Failure}
	}
	return d.failed("auth", d.away, w.Failure)
}
