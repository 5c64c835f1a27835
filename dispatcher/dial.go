package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// dialLoop keeps a session with a host of the registry: it dials until ctx ends,
// with full jitter between attempts. ctx ends the dialling, not an open session. An
// agent may dial as well: while it has a session, or is being greeted, it is not dialled
// again, or each of the two would end the session of the other, for ever. Only the first
// time it is, as the host may have moved to this address.
func (d *Dispatcher) dialLoop(ctx context.Context, spec HostSpec) {
	h := d.hosts.get(spec.Name)
	var has *session
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, reconnectCap) {
		if has != nil {
			has.awaitEnd(ctx)
			pause = time.Second / 2 // doubled to the first pause again
		} else if d.dialOnce(ctx, h, spec) {
			pause = time.Second / 2
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
		}
		has = h.settled(ctx)
	}
}

// dialOnce dials a host and serves its session. It reports whether the host could be
// dialled.
func (d *Dispatcher) dialOnce(ctx context.Context, h *host, spec HostSpec) bool {
	conn, err := d.dialHost(ctx, spec)
	if err == nil {
		err = d.serveAgent(d.ctx, conn)
		d.hostLines.Info(spec.Name, "session ended", "host", spec.Name, "err", err)
		return true
	}
	if ctx.Err() == nil {
		h.setDialError(err.Error())
		d.log.Debug("dial", "host", spec.Name, "err", err)
	}
	return false
}

// awaitEnd waits until nothing is left of the session, or ctx ends.
func (s *session) awaitEnd(ctx context.Context) {
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// dialHost connects to a host and makes sure that it is the one.
func (d *Dispatcher) dialHost(ctx context.Context, spec HostSpec) (*transport.Conn, error) {
	if d.cfg.TLS == nil {
		return nil, &harp.FieldError{Field: "tls", Message: "must be set to dial hosts"}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	nc, err := d.cfg.Dial(ctx, wire.WithPort(spec.Address, wire.AgentPort))
	if err != nil {
		return nil, &harp.HostError{Host: spec.Name, Stage: "dial", Err: errors.Join(harp.ErrUnreachable, err)}
	}
	conn, err := transport.Client(ctx, nc, d.cfg.TLS, transport.ProtocolAgent, transport.RoleAgent)
	if err != nil {
		if handshake := (*transport.HandshakeError)(nil); errors.As(err, &handshake) {
			err = handshake.Err // where and at which stage is said by the HostError
		}
		return nil, &harp.HostError{Host: spec.Name, Stage: "tls", Err: errors.Join(harp.ErrUnreachable, err)}
	}
	if name := conn.Peer().Identity.Name; name != spec.Name {
		err := fmt.Errorf("the agent at %s is %q", spec.Address, name)
		return nil, errors.Join(&harp.HostError{Host: spec.Name, Stage: "auth", Err: err}, conn.Close())
	}
	return conn, nil
}
