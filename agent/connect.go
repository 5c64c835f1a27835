package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
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

// Connect dials the dispatcher at one of the addresses, port 7440 unless they name
// another, and runs what it is asked to. Several addresses are alternatives, tried in
// random order: the agent has one dispatcher at a time. They should lead to one, or to
// such as have one store. What a dispatcher with another store asked for goes on, and
// waits for that one.
//
// Connect reconnects for ever, whatever went wrong, a refusal too: the pause before an
// attempt is chosen at random, within a second at first and within ten, or as many as
// the dispatcher wishes, when attempts keep failing.
//
// When ctx ends the agent takes no more calls. Procedures that run have Limits.Grace to end by
// themselves; then their contexts end, with the cause harp.ErrClosed, and one that stops for
// that is lost, as after a crash: it runs again if it is declared idempotent. Commands go on
// without the agent if it has a Dir, and are ended like functions if it has none. Connect
// returns nil when all have returned and the dispatcher has taken their results, for which it
// has Limits.Grace, too; what it has not taken by then is journalled. A procedure that does
// not return keeps Connect from returning. That a session ends does nothing to
// procedures.
//
// The error is a *harp.FieldError for a configuration or an address that cannot be,
// and for a Dir that others could change, harp.ErrConflict while another Connect of the
// agent runs, a *DirInUseError while another process uses Dir for 2 s more, a *CopiedDirError for a
// Dir that is a copy of one of which something may run, or why the journal cannot
// be opened: journal.ErrCorrupt if it is damaged, journal.ErrVersion if other software wrote it.
func (a *Agent) Connect(ctx context.Context, addrs ...string) error {
	if err := a.check(); err != nil {
		return err
	}
	if a.bare {
		return errNoTLS
	}
	addrs, err := withPorts(addrs)
	if err != nil {
		return err
	}
	if !a.connects.CompareAndSwap(false, true) {
		return errConnects
	}
	defer a.connects.Store(false)
	st, err := a.begin(ctx)
	if err != nil {
		return err
	}
	defer a.end(st)
	c := connector{agent: a, addrs: addrs, scope: st, said: map[string]string{}}
	for ctx.Err() == nil {
		begun := time.Now()
		opened, err := c.once(ctx)
		if ctx.Err() == nil {
			c.sleep(ctx, begun, opened, err)
		}
	}
	return nil
}

var (
	errNoTLS    = &harp.FieldError{Field: "tls", Message: "must be set"}
	errConnects = fmt.Errorf("%w: agent: Connect runs already; it takes several addresses", harp.ErrConflict)
)

// withPorts adds the port to addresses that have none. There must be one at least.
func withPorts(addrs []string) ([]string, error) {
	if len(addrs) == 0 {
		addrs = []string{""}
	}
	with := make([]string, len(addrs))
	for i, addr := range addrs {
		var err error
		if with[i], err = withPort(addr); err != nil {
			return nil, err
		}
	}
	return with, nil
}

// withPort adds the port to an address that has none.
func withPort(addr string) (string, error) {
	if err := wire.CheckAddr(addr); err != nil {
		return "", err
	}
	return wire.WithPort(addr, wire.DispatcherPort), nil
}

// connector is one Connect.
type connector struct {
	agent    *Agent
	addrs    []string
	left     []string // of those, to be tried before any is tried again
	addr     string   // tried last
	scope    *scope
	failures int               // since a session was open for calls
	said     map[string]string // the failure last logged, by address
}

// next chooses the address to be tried now.
func (c *connector) next() {
	if len(c.left) == 0 {
		c.left = slices.Clone(c.addrs)
		rand.Shuffle(len(c.left), func(i, j int) { c.left[i], c.left[j] = c.left[j], c.left[i] })
	}
	c.addr, c.left = c.left[0], c.left[1:]
}

// once dials and speaks until the session ends. It reports whether it was open for
// calls.
func (c *connector) once(ctx context.Context) (opened bool, err error) {
	c.next()
	conn, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	return c.agent.converse(ctx, conn, c.scope)
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
	wait := max(0, pause(c.failures/len(c.addrs), c.agent.longestPause())-time.Since(begun))
	if opened {
		c.failures, c.left = 0, nil
		clear(c.said)
		wait = pause(0, c.agent.longestPause())
	}
	c.failures++
	if text := fmt.Sprint(err); !opened && text != c.said[c.addr] {
		c.said[c.addr] = text
		c.agent.log.Warn("not connected", "addr", c.addr, "error", text, "retry", wait)
	}
	select {
	case <-time.After(wait):
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
