package agent

import (
	"context"
	"net"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/transport"
)

// Serve is for an agent that is dialled: by its dispatcher, and by callers that do
// without one (client.DialAgent), whose jobs nobody keeps. A direct call is cancelled
// when its caller goes away.
//
// Serve closes l when ctx ends, and then stops as Connect does. It returns nil
// then, a *harp.FieldError if there is no l, l's error if that fails before, or what Connect returns for a configuration
// that cannot be and a journal that cannot be opened.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	if err := a.check(); err != nil {
		return err
	}
	if l == nil {
		return &harp.FieldError{Field: "listener", Message: "must be set"}
	}
	if _, tcp := l.Addr().(*net.TCPAddr); tcp && a.cfg.TLS == nil {
		return errNoTLS
	}
	st, err := a.begin(ctx)
	if err != nil {
		return err
	}
	defer a.end(st)
	return transport.Serve(ctx, l, transport.ServeConfig{
		TLS:    a.cfg.TLS,
		Logger: a.log,
		Protocols: map[string]transport.Role{
			transport.ProtocolAgent:  transport.RoleDispatcher,
			transport.ProtocolDirect: transport.RoleCaller,
		},
	}, func(ctx context.Context, conn *transport.Conn) {
		if opened, err := a.converse(ctx, conn, st); !opened && ctx.Err() == nil {
			who := conn.Peer().Identity.String()
			a.repeated.Warn(who, "session refused", "peer", who, "addr", conn.Peer().Addr, "error", err.Error())
		}
	})
}
