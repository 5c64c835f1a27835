package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/harpcaller/harp/cmd/harp/internal/config"
)

// certificate is one that a program that runs shows to its peers, and that can be
// replaced. Connections that are open keep theirs.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// live returns the configuration with the certificate of tc, and then with those that
// it is replaced by.
func (c *certificate) live(tc *tls.Config) *tls.Config {
	c.replace(tc)
	tc = tc.Clone()
	tc.Certificates = nil
	tc.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil }
	tc.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.current.Load(), nil }
	return tc
}

// replace makes connections to come show the certificate of tc.
func (c *certificate) replace(tc *tls.Config) { c.current.Store(&tc.Certificates[0]) }

// onHangup runs fn on each SIGHUP, as onSignal does.
func onHangup(ctx context.Context, fn func()) (wait func()) { return onSignal(ctx, syscall.SIGHUP, fn) }

// onSignal runs fn each time a signal comes until ctx ends, and returns a function that
// waits for the end of that. Signals that come while fn runs are one.
func onSignal(ctx context.Context, sig os.Signal, fn func()) (wait func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, sig)
	var running sync.WaitGroup
	running.Go(func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				fn()
			case <-ctx.Done():
				return
			}
		}
	})
	return running.Wait
}

// badConfiguration is what the log says of one that was read again.
const badConfiguration = "invalid configuration; keeping the previous one"

// logBad says what is wrong with a configuration that was read again.
func logBad(log *slog.Logger, err error) {
	for _, one := range each(err) {
		log.Error(badConfiguration, "error", one.Error())
	}
}

// logRead says that a configuration was read again, and what of it must wait.
func logRead(log *slog.Logger, waiting []string) {
	if len(waiting) > 0 {
		log.Warn("some of the new configuration needs a restart", "fields", waiting)
	}
	log.Info("configuration reloaded")
}

// levelOf is the level of a log, which can be changed.
func levelOf(l config.Level) *slog.LevelVar {
	v := new(slog.LevelVar)
	v.Set(l.Level)
	return v
}
