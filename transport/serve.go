package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"golang.org/x/time/rate"
)

// ServeConfig are the settings of [Serve].
type ServeConfig struct {
	TLS            *tls.Config
	Protocols      map[string]Role // the role a peer must have, by protocol
	Logger         *slog.Logger    // default: slog.Default()
	HandshakeRate  rate.Limit      // handshakes a second; default: 1000
	HandshakeLimit int             // handshakes at the same time; default: 64
}

// Serve accepts connections from l and runs handle for each that shakes hands.
func Serve(ctx context.Context, l net.Listener, cfg ServeConfig, handle func(context.Context, *Conn)) error {
	panic("todo")
}
