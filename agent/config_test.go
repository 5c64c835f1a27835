package agent_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

var longKey = strings.Repeat("k", harp.MaxLabelKey+1)

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[strconv.Itoa(i)] = "x"
	}
	return labels
}

func TestConfig(t *testing.T) {
	p := loopback{}
	over, cancel := context.WithCancel(t.Context())
	cancel() // what can be returns at once
	for field, change := range map[string]func(*agent.Config){
		"name":                 func(c *agent.Config) { c.Name = "" },
		"name ":                func(c *agent.Config) { c.Name = "web02" },
		"tls":                  func(c *agent.Config) { c.TLS = p.config(t, callerID) },
		"label ":               func(c *agent.Config) { c.Labels = map[string]string{"": "x"} },
		"limits.max_result":    func(c *agent.Config) { c.Limits.MaxResult = 3 << 20 },
		"limits.max_record":    func(c *agent.Config) { c.Limits.MaxRecord = -1 },
		"limits.max_attempts":  func(c *agent.Config) { c.Limits.MaxAttempts = -1 },
		"limits.grace":         func(c *agent.Config) { c.Limits.Grace = -1 },
		"limits.max_journal":   func(c *agent.Config) { c.Limits.MaxJournal = -1 },
		"limits.max_job_spool": func(c *agent.Config) { c.Limits.MaxJobSpool = -1 },
		"limits.max_result ":   func(c *agent.Config) { c.Limits.MaxResult = wire.MaxMessage + 1 },
		"limits.max_record ":   func(c *agent.Config) { c.Limits.MaxRecord = wire.MaxMessage + 1 },
		"limits.max_attempts ": func(c *agent.Config) { c.Limits.MaxAttempts = 1<<20 + 1 },
		"name  ":               func(c *agent.Config) { c.Name, c.TLS.Certificates = strings.Repeat("x", harp.MaxHostName+1), nil },
		"name   ":              func(c *agent.Config) { c.Name, c.TLS.Certificates = "web\xff", nil },
		"tls ":                 func(c *agent.Config) { c.TLS.Certificates = []tls.Certificate{{Certificate: [][]byte{[]byte("none")}}} },
		"labels":               func(c *agent.Config) { c.Labels = manyLabels(harp.MaxLabels + 1) },
		"label k":              func(c *agent.Config) { c.Labels = map[string]string{"k": strings.Repeat("v", harp.MaxLabelValue+1)} },
		"label k\xff":          func(c *agent.Config) { c.Labels = map[string]string{"k\xff": "v"} },
		"label l":              func(c *agent.Config) { c.Labels = map[string]string{"l": "v\xff"} },
		"label " + longKey:     func(c *agent.Config) { c.Labels = map[string]string{longKey: "v"} },
		"exec.dirs":            func(c *agent.Config) { c.Exec = &agent.ExecPolicy{Dirs: []string{"relative"}} },
	} {
		a := newAgent(t, p, change)
		var e *harp.FieldError
		if err := a.Connect(over, "127.0.0.1"); !errors.As(err, &e) || e.Field != strings.TrimRight(field, " ") && e.Field != field {
			t.Errorf("%s: Connect returned %v", field, err)
		}
	}
	for _, limits := range []agent.Limits{
		{MaxAttempts: 1, MaxResult: 1, MaxRecord: 1},
		{MaxAttempts: 1 << 20, MaxResult: wire.MaxMessage, MaxRecord: wire.MaxMessage},
	} {
		if err := newAgent(t, p, func(c *agent.Config) { c.Limits = limits }).Connect(over, "127.0.0.1"); err != nil {
			t.Errorf("%+v: Connect returned %v", limits, err)
		}
	}
	var e *harp.FieldError
	for _, addr := range []string{"", "a[b"} {
		if err := newAgent(t, p).Connect(over, addr); !errors.As(err, &e) || e.Field != "addr" {
			t.Errorf("Connect of %q returned %v", addr, err)
		}
	}
	most := func(c *agent.Config) {
		c.Labels = manyLabels(harp.MaxLabels - 1)
		c.Labels[longKey[1:]] = strings.Repeat("v", harp.MaxLabelValue)
	}
	if err := newAgent(t, p, most).Connect(over, "127.0.0.1"); err != nil {
		t.Errorf("with as many and as long labels as there may be: %v", err)
	}
	long := func(c *agent.Config) { c.Name, c.TLS.Certificates = strings.Repeat("x", harp.MaxHostName), nil }
	if err := newAgent(t, p, long).Connect(over, "127.0.0.1"); err != nil {
		t.Errorf("with as long a name as there may be: %v", err)
	}
	bare := agent.New(agent.Config{Name: "web01", Logger: silent})
	if err := bare.Connect(t.Context(), "127.0.0.1"); !errors.As(err, &e) || e.Field != "tls" {
		t.Errorf("Connect returned %v", err)
	}
	l := p.listen(t, agentID)
	defer l.Close()
	if err := newAgent(t, p).Serve(t.Context(), nil); !errors.As(err, &e) || e.Field != "listener" {
		t.Errorf("without a listener: %v", err)
	}
	if err := newAgent(t, p, func(c *agent.Config) { c.TLS = nil }).Serve(t.Context(), l); !errors.As(err, &e) || e.Field != "tls" {
		t.Errorf("Serve returned %v", err)
	}
}
