package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

const (
	expiresSoon = 14 * 24 * time.Hour // a certificate that should be renewed
	clocksApart = 5 * time.Second     // clocks that differ by more are worth a word
	clocksBreak = time.Hour           // ids that are further ahead are refused
	stepTime    = 5 * time.Second     // for one step on the network
	pings       = 3
)

// context finds which dispatcher is meant.
func (d *doctor) context() (contexts.Context, bool) {
	to, err := d.cli.resolve()
	if err != nil {
		return to, d.failCheck("context", "harp ctx add, or harp dev", "%s", message(err))
	}
	return to, d.ok("context", "%s as %s", to.Addr, to.Cert)
}

// certificates looks at the caller's certificate and at whom it trusts.
func (d *doctor) certificates(to contexts.Context) (*tls.Config, bool) {
	const renew = "get a new one for this name"
	tc, err := transport.LoadTLS(to.Cert, to.Key, to.CA)
	if err != nil {
		return nil, d.failCheck("certificate", "harp ctx show names the files", "%s", strings.TrimPrefix(err.Error(), "transport: "))
	}
	leaf := tc.Certificates[0].Leaf
	id, err := identityFor(leaf, transport.RoleCaller)
	if err != nil {
		return nil, d.failCheck("certificate", "use a caller's certificate", "%s", message(err))
	}
	now := time.Now()
	good := true
	switch {
	case now.Before(leaf.NotBefore):
		good = d.failCheck("certificate", "set this machine's clock", "for %s is not valid before %s", id, d.cli.clock(leaf.NotBefore))
	case now.After(leaf.NotAfter):
		good = d.failCheck("certificate", renew, "for %s expired %s", id, relative(now.Sub(leaf.NotAfter)))
	case leaf.NotAfter.Sub(now) < expiresSoon:
		good = d.warn("certificate", renew, "for %s expires in %s", id, age(leaf.NotAfter.Sub(now)))
	default:
		d.ok("certificate", "for %s, valid for %s", id, age(leaf.NotAfter.Sub(now)))
	}
	return tc, d.authority(to.CA, tc, now) && good
}

// authority looks whether an authority has signed the caller's certificate, and for how long
// that counts.
func (d *doctor) authority(file string, tc *tls.Config, now time.Time) bool {
	const renew = "get the fleet's new authority"
	chains, err := chainsOf(file, tc)
	if err != nil {
		return d.failCheck("authority", "", "%s", err)
	}
	if len(chains) == 0 {
		return d.failCheck("authority", "certificate and authority must belong to the same fleet", "no authority in %s signed the certificate", file)
	}
	best := newestChain(chains)
	switch from, until := best.from(), best.until(); {
	case now.Before(from):
		return d.failCheck("authority", "set this machine's clock", "is not valid before %s", d.cli.clock(from))
	case now.After(until):
		return d.failCheck("authority", renew, "in %s expired %s", file, relative(now.Sub(until)))
	case until.Sub(now) < expiresSoon:
		return d.warn("authority", renew, "in %s expires in %s", file, age(until.Sub(now)))
	default:
		return d.ok("authority", "signed the certificate, valid for %s", age(until.Sub(now)))
	}
}

// network goes the way to the dispatcher step by step: name, TCP, TLS.
func (d *doctor) network(ctx context.Context, to contexts.Context, tc *tls.Config) bool {
	addr := wire.WithPort(to.Addr, wire.DispatcherPort)
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return d.failCheck("address", "harp ctx add --replace", "%s", err)
	}
	if net.ParseIP(host) == nil && !d.lookupHost(ctx, host) {
		return false
	}
	dialing, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	var dialer net.Dialer
	nc, err := dialer.DialContext(dialing, "tcp", addr)
	if err != nil {
		return d.failCheck("network", "is the dispatcher running, and does a firewall let its port through?", "%s", err)
	}
	d.ok("network", "%s answers", nc.RemoteAddr())
	return d.handshake(ctx, nc, tc)
}

func (d *doctor) lookupHost(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return d.failCheck("name", "is the name right, and can DNS resolve it here?", "%s", err)
	}
	return d.ok("name", "%s is %s", host, strings.Join(addrs, ", "))
}

// handshake greets the dispatcher by TLS, as a call would, and looks at its certificate.
func (d *doctor) handshake(ctx context.Context, nc net.Conn, tc *tls.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	var leaf *x509.Certificate
	tc = tc.Clone()
	tc.VerifyConnection = func(s tls.ConnectionState) error {
		leaf = s.PeerCertificates[0]
		return nil
	}
	conn, err := transport.Client(ctx, nc, tc, transport.ProtocolCall, transport.RoleDispatcher)
	if err != nil {
		return d.failCheck("TLS", "both certificates must be valid now and of the same fleet; the dispatcher's log says what is wrong", "%s", err)
	}
	defer conn.Close()
	left := time.Until(leaf.NotAfter)
	if left < expiresSoon {
		return d.warn("TLS", "get the dispatcher a new certificate", "%s, whose certificate expires in %s", conn.Peer().Identity, age(left))
	}
	return d.ok("TLS", "%s, valid for %s", conn.Peer().Identity, age(left))
}

// dispatcher asks the dispatcher for its version and clock.
func (d *doctor) dispatcher(ctx context.Context, caller *harp.Caller, addr string) bool {
	var (
		info harp.ServerInfo
		rtt  time.Duration
		off  time.Duration
	)
	for i := range pings {
		begun := time.Now()
		got, err := caller.Ping(ctx)
		if err != nil {
			return d.failCheck("dispatcher", "see the dispatcher's log", "%s", err)
		}
		if took := time.Since(begun); i == 0 || took < rtt {
			info, rtt = got, took
			off = got.Time.Sub(begun.Add(took / 2))
		}
	}
	d.ok("dispatcher", "%s at %s, protocol %d, rtt %s", info.Software, addr, info.Protocol, rtt.Round(100*time.Microsecond))
	for _, trouble := range info.Troubles {
		d.warn("dispatcher", "see the dispatcher's log", "%s", trouble)
	}
	d.checkBounds(info.Bounds)
	text := off.Round(10 * time.Millisecond).String()
	switch apart := off.Abs(); {
	case apart >= clocksBreak:
		return d.failCheck("clock", "set this machine's clock, or the dispatcher's", "the dispatcher's differs by %s", text)
	case apart >= clocksApart:
		return d.warn("clock", "set this machine's clock, or the dispatcher's", "the dispatcher's differs by %s", text)
	}
	return d.ok("clock", "the dispatcher's differs by %s", text)
}
