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
	"github.com/harpcaller/harp/internal/version"
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

	// Use are interceptors of all that the Caller asks; the first is asked first. They mean
	// nothing to DialAgent.
	Use []harp.Interceptor

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
// Errors: a *FieldError for an address that has no host, or a port that cannot be; a *HostError, which says at which stage
// the dispatcher could not be reached. It is ErrDenied when one side does not accept who the
// other is, or Config.TLS is not set and needed, and else ErrUnavailable.
func Dial(ctx context.Context, addr string, cfg Config) (*harp.Caller, error) {
	if err := cfg.checkAddr(addr); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(wire.DispatcherPort)
	d := dialer{
		addr: addr, cfg: cfg, protocol: transport.ProtocolCall, role: transport.RoleDispatcher,
		noAnswer: harp.ErrUnavailable, instance: harp.NewID(),
	}
	first, err := d.openSession(ctx)
	if err != nil {
		return nil, err
	}
	return harp.NewCaller(harp.Intercept(newRemote(d, first), cfg.Use...)), nil
}

// checkAddr refuses an address that cannot be dialled. What a Dial of its own takes it knows itself.
func (c Config) checkAddr(addr string) error {
	if c.Dial != nil && addr != "" {
		return nil
	}
	return wire.CheckAddr(addr)
}

var errNoTLS = errors.New("Config.TLS has no authority in RootCAs")

// dialer opens sessions with one peer. It holds what every attempt to connect needs.
type dialer struct {
	addr     string
	cfg      Config
	protocol string
	role     transport.Role
	noAnswer error // the sentinel for a peer that cannot be reached
	instance string
}

// session is a connection on which the hellos were exchanged.
type session struct {
	*transport.Session
	welcome    wire.Welcome
	reading    sync.WaitGroup // the goroutine that reads the session and handles its frames
	submitting chan struct{}  // a slot for each submission that has no answer yet
}

// openSession connects and exchanges hellos, once. The error is a *HostError.
func (d dialer) openSession(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	nc, err := d.cfg.Dial(ctx, d.addr)
	if err != nil {
		return nil, d.hostError(dialStage(err), d.noAnswer, err)
	}
	if _, link := nc.(transport.Link); !link && (d.cfg.TLS == nil || d.cfg.TLS.RootCAs == nil) {
		nc.Close() //nolint:errcheck // nothing was said
		return nil, d.hostError("auth", harp.ErrDenied, errNoTLS)
	}
	conn, err := transport.Client(ctx, nc, d.cfg.TLS, d.protocol, d.role)
	if err != nil {
		return nil, d.handshakeFailed(err)
	}
	ts, err := conn.Opener(ctx, transport.Options{Logger: d.cfg.Logger, MaxFrame: wire.MaxBody})
	if err != nil {
		conn.Close() //nolint:errcheck // why there is no session is what counts
		return nil, d.hostError("auth", d.noAnswer, err)
	}
	s := &session{Session: ts, submitting: make(chan struct{}, maxSubmitting)}
	s.reading.Go(func() { ts.Serve(nil) }) //nolint:errcheck // the session's own Err says why
	if err := d.exchangeHello(ctx, s); err != nil {
		s.closeAndWait(nil)
		return nil, err
	}
	return s, nil
}

// closeAndWait ends the session, and waits for the goroutine that reads it.
func (s *session) closeAndWait(reason error) {
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

// hostError returns the *HostError of a stage that failed.
func (d dialer) hostError(stage string, is, cause error) error {
	return &harp.HostError{Host: d.addr, Stage: stage, Err: &causeError{is, cause}}
}

// handshakeFailed tells the network's troubles from a peer that is not who it must
// be and from one that does not accept who this side is.
func (d dialer) handshakeFailed(err error) error {
	var unverified *tls.CertificateVerificationError
	var handshake *transport.HandshakeError
	if errors.As(err, &handshake) {
		err = handshake.Err // where and at which stage is said by the HostError
	}
	if errors.Is(err, transport.ErrIdentity) || errors.As(err, &unverified) || isCertificateAlert(err) {
		return d.hostError("auth", harp.ErrDenied, err)
	}
	return d.hostError("tls", d.noAnswer, err)
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

// exchangeHello begins a session: it sends hello, receives welcome and starts the heartbeat.
func (d dialer) exchangeHello(ctx context.Context, s *session) error {
	control := s.Control()
	hello := wire.Hello{Version: wire.Version, Software: version.Software(), Instance: d.instance, Token: d.cfg.Token}
	err := control.Send(wire.TypeHello, false, wire.Encode(hello))
	if err != nil && !errors.Is(err, transport.ErrSessionClosed) {
		return d.hostError("auth", d.noAnswer, err)
	}
	f, err := control.Receive(ctx) // why this side is not welcome is there after the session, too
	if err != nil {
		return d.hostError("auth", d.noAnswer, err)
	}
	if s.welcome, err = d.decodeWelcome(f); err != nil {
		return err
	}
	if every := time.Duration(s.welcome.Heartbeat); every > 0 {
		s.Beat(max(every, leastBeat))
	}
	s.RefuseControl()
	return nil
}

// decodeWelcome decodes the peer's answer to hello.
func (d dialer) decodeWelcome(f transport.Frame) (wire.Welcome, error) {
	switch f.Type {
	case wire.TypeWelcome:
		var w wire.Welcome
		if err := wire.Decode(f.Body, &w); err != nil {
			return w, d.hostError("auth", d.noAnswer, err)
		}
		if w.Version != wire.Version {
			return w, d.hostError("auth", d.noAnswer, fmt.Errorf("it speaks version %d, this side %d", w.Version, wire.Version))
		}
		return w, nil
	case wire.TypeUnwelcome:
		return wire.Welcome{}, d.unwelcome(f.Body)
	}
	return wire.Welcome{}, d.hostError("auth", d.noAnswer, fmt.Errorf("frame type %d instead of a welcome", f.Type))
}

func (d dialer) unwelcome(body []byte) error {
	var w wire.Unwelcome
	if err := wire.Decode(body, &w); err != nil {
		return d.hostError("auth", d.noAnswer, err)
	}
	if w.Failure == nil {
		return d.hostError("auth", d.noAnswer, errors.New("unwelcome without an error"))
	}
	if errors.Is(w.Failure, harp.ErrDenied) {
		return &harp.HostError{Host: d.addr, Stage: "auth", Err: w.Failure}
	}
	return d.hostError("auth", d.noAnswer, w.Failure)
}
