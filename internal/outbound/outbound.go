package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp/internal/outbound/certs"
)

const (
	maxURL     = 2048     // bytes
	maxHeaders = 16 << 10 // bytes of an answer's
)

// Config says what may be reached.
type Config struct {
	Networks []netip.Prefix // beside the public Internet, and by http too
	CAFiles  []string       // certificates of authorities as PEM, which are trusted beside the system's
	Within   time.Duration  // how long a connection may take to be made
}

// Transport is a [http.RoundTripper] that connects to public addresses and those of the networks that are allowed. Each request
// resolves its name anew, and nothing stays open between them. Proxies of the environment are not used, since only who connects itself can
// tell which address it reaches. It is safe for concurrent use.
type Transport struct {
	networks networks
	within   time.Duration
	dialer   net.Dialer
	http     http.Transport
}

// New returns a Transport. Errors: harp.ErrInvalid for a network that is none (networks); those of reading CAFiles.
func New(config Config) (*Transport, error) {
	allowed, err := newNetworks(config.Networks)
	if err != nil {
		return nil, err
	}
	trusted, err := certs.Config(config.CAFiles)
	if err != nil {
		return nil, err
	}
	t := &Transport{networks: allowed, within: config.Within}
	t.http = http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.dial(ctx, network, address, t.networks.contain)
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, t.within)
			defer cancel()
			conn, err := t.dial(ctx, network, address, t.networks.allow)
			if err != nil {
				return nil, err
			}
			return certs.Client(ctx, conn, trusted, address)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaders,
	}
	return t, nil
}

// dial connects to an address that may be reached. The time is bounded here too, as a Transport's dial has not the request's.
func (t *Transport) dial(ctx context.Context, network, address string, allowed func(netip.Addr) bool) (net.Conn, error) {
	dialer := t.dialer
	dialer.Timeout = t.within
	dialer.ControlContext = allowOnly(allowed)
	return dialer.DialContext(ctx, network, address)
}

// RoundTrip asks once, and follows nothing. After 101 there is nothing to be read: the connection is no longer the Transport's then, and
// a read of it would end with nobody's time. Errors: those of [http.Transport], which wrap ErrNetwork for an address that may not be reached.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.http.RoundTrip(request)
	if err != nil {
		t.http.CloseIdleConnections() // there are none, but this ends dials that nobody waits for any more
		return nil, err
	}
	if response.StatusCode < http.StatusOK {
		_ = response.Body.Close() // nothing was written
		response.Body = http.NoBody
	}
	return response, nil
}

// SetResolver makes names be resolved by r, for tests.
func (t *Transport) SetResolver(r *net.Resolver) { t.dialer.Resolver = r }

// SetDial makes http connect by dial, whatever the address is, for tests.
func (t *Transport) SetDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	t.http.DialContext = dial
}

// ParseURL reads a URL that may be asked: https with a host, without a user or a fragment, of at most 2,048 bytes, and of no address that
// may not be reached. It may be http if there are networks that are allowed; its host must be in one of them. Errors: what is wrong
// with it, without telling the URL, whose path is often a secret.
func (t *Transport) ParseURL(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("takes %d bytes, at most %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is no URL")
	case u.Scheme != "https" && (u.Scheme != "http" || len(t.networks) == 0):
		return nil, errors.New("must begin with https://")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("must not hold a user or password")
	case strings.Contains(text, "#"):
		return nil, errors.New("must not hold a fragment: it is sent to nobody")
	case !hasValidPort(u):
		return nil, errors.New("has no port from 1 to 65535")
	}
	allowed := t.networks.allow
	if u.Scheme == "http" {
		allowed = t.networks.contain
	}
	if address, ok := literal(u.Hostname()); ok && !allowed(address) {
		return nil, ErrNetwork
	}
	return u, nil
}

func hasValidPort(u *url.URL) bool {
	if u.Port() == "" {
		return true
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}
