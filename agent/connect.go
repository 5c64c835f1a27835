package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

const (
	// connectTime is how long an attempt to connect may take. The handshake, with the
	// wait for its turn at a dispatcher to which thousands come back, has 10 s more.
	connectTime = 5 * time.Second

	// firstPause bounds the pause before the first attempt to reconnect; it is
	// doubled for each further one up to the longest.
	firstPause     = time.Second
	defaultLongest = 10 * time.Second
	maxLongest     = 10 * time.Minute
)

// dialTCP is the default of Config.Dial.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// Connect dials the dispatcher at addr, port 7440 unless it names another, and runs
// what it is asked to. It reconnects for ever, whatever went wrong, a refusal too:
// the pause before an attempt is chosen at random, within a second at first and
// within ten, or as many as the dispatcher wishes, when attempts keep failing.
//
// When ctx ends the agent takes no more calls and ends the contexts of the
// procedures that run, with the cause harp.ErrClosed. Connect returns nil when they
// have returned and the dispatcher has taken their results, for which it has
// Limits.Grace; what it has not taken by then is journalled. A procedure that does
// not return keeps Connect from returning. That a session ends does nothing to
// procedures.
//
// The error is a *harp.FieldError for a configuration or an address that cannot be,
// and for a Dir that others could change, a *DirInUseError while another process uses Dir, or why the journal cannot be
// opened: journal.ErrCorrupt if it is damaged.
func (a *Agent) Connect(ctx context.Context, addr string) error {
	if err := a.check(); err != nil {
		return err
	}
	if a.bare {
		return errNoTLS
	}
	addr, err := withPort(addr)
	if err != nil {
		return err
	}
	st, err := a.begin()
	if err != nil {
		return err
	}
	defer a.end(st)
	c := connector{agent: a, addr: addr, stay: st}
	for ctx.Err() == nil {
		begun := time.Now()
		opened, err := c.once(ctx)
		if ctx.Err() == nil {
			c.sleep(ctx, begun, opened, err)
		}
	}
	return nil
}

var errNoTLS = &harp.FieldError{Field: "tls", Message: "must be set"}

// withPort adds the port to an address that has none.
func withPort(addr string) (string, error) {
	if addr == "" {
		return "", &harp.FieldError{Field: "addr", Message: "must be host or host:port"}
	}
	with := wire.WithPort(addr, wire.DispatcherPort)
	if _, _, err := net.SplitHostPort(with); err != nil {
		return "", &harp.FieldError{Field: "addr", Message: err.Error()}
	}
	return with, nil
}

// connector is one Connect.
type connector struct {
	agent    *Agent
	addr     string
	stay     *stay
	failures int    // since a session was open for calls
	said     string // the failure last logged
}

// once dials and speaks until the session ends. It reports whether it was open for
// calls.
func (c *connector) once(ctx context.Context) (opened bool, err error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	return c.agent.converse(ctx, conn, c.stay)
}

// dial connects.
func (c *connector) dial(ctx context.Context) (*transport.Conn, error) {
	dialling, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	nc, err := c.agent.cfg.Dial(dialling, c.addr)
	if err != nil {
		return nil, err
	}
	return transport.Client(ctx, nc, c.agent.cfg.TLS, transport.ProtocolAgent, transport.RoleDispatcher)
}

// sleep waits before the next attempt. The time that one took that failed counts:
// over a network that swallows everything it is long, and when it no longer does the
// agent shall be there as soon as over one that refuses. What went wrong is worth a
// line when it is news.
func (c *connector) sleep(ctx context.Context, begun time.Time, opened bool, err error) {
	wait := pause(c.failures, c.agent.longestPause()) - time.Since(begun)
	if opened {
		c.failures, c.said = 0, ""
		wait = pause(0, c.agent.longestPause())
	}
	c.failures++
	if text := fmt.Sprint(err); !opened && text != c.said {
		c.said = text
		c.agent.log.Warn("not connected", "addr", c.addr, "error", text, "retry", wait)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pause chooses the pause after so many failures: full jitter.
func pause(failures int, longest time.Duration) time.Duration {
	most := firstPause << min(failures, 30)
	return rand.N(min(most, longest))
}

// longestPause is what the dispatcher wished last.
func (a *Agent) longestPause() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.longest
}
