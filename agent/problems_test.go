package agent_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// A certificate that ends soon is a problem, unless it never was good for long; one that replaces
// it ends the problem.
func TestCertificateThatEndsSoonIsAProblem(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		leaf := &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
		a := newAgent(t, p, func(c *agent.Config) {
			c.TLS = &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: [][]byte{{0}}, Leaf: leaf}, nil
			}}
		})
		said := func() string {
			found := a.LookAtCertificate()
			if len(found) == 0 {
				return ""
			}
			return found[0].Code + ": " + found[0].Text
		}
		if s := said(); s != "" {
			t.Error(s)
		}
		time.Sleep(352 * 24 * time.Hour)
		if s := said(); s != "certificate: the agent's certificate expires on 2000-12-31 00:00 UTC" {
			t.Error(s)
		}
		time.Sleep(14 * 24 * time.Hour)
		if s := said(); s != "certificate: the agent's certificate expired on 2000-12-31 00:00 UTC" {
			t.Error(s)
		}
		leaf = &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour)}
		if s := said(); s != "" {
			t.Error(s)
		}
	})
}

// However much is wrong, what a dispatcher is told of it has a bound.
func TestProblemsAreBounded(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		a := newAgent(t, p)
		var errs []error
		for i := range 100 {
			errs = append(errs, fmt.Errorf("file %d: %s", i, strings.Repeat("é", 1000)))
		}
		list := a.Report("procedures", errors.Join(errs[:50]...), errors.Join(errs[50:]...))
		if len(list) != wire.MaxProblems || len(list[0].Text) > wire.MaxProblemText || !strings.HasPrefix(list[0].Text, "file 0: é") {
			t.Errorf("%d problems: %v", len(list), list[0])
		}
		if most := len(wire.Encode(wire.Facts{Facts: make(harp.Value, agent.MaxFacts), Problems: list})); most > wire.MaxControl {
			t.Errorf("FACTS has %d bytes", most)
		}
		if list := a.Report("procedures", nil); len(list) != 0 {
			t.Errorf("nothing is wrong any more: %v", list)
		}
	})
}
