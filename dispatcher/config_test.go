package dispatcher

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A configuration that says nothing has the defaults that its comments name.
func TestTheZeroConfigHasItsDefaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string][2]time.Duration{
		"refresh_hosts":              {c.RefreshHosts, 15 * time.Minute},
		"heartbeat":                  {c.Heartbeat, 10 * time.Second},
		"offline_wait":               {c.OfflineWait, 30 * time.Second},
		"lost_after":                 {c.LostAfter, 24 * time.Hour},
		"retain":                     {c.Retain, 30 * 24 * time.Hour},
		"limits.silence_timeout":     {c.Limits.SilenceTimeout, 10 * time.Minute},
		"limits.max_exec_time":       {c.Limits.MaxExecTime, 24 * time.Hour},
		"limits.max_silence_timeout": {c.Limits.MaxSilenceTimeout, harp.NoLimit},
		"limits.max_max_exec_time":   {c.Limits.MaxMaxExecTime, harp.NoLimit},
		"limits.batch_pause":         {c.Limits.BatchPause, 24 * time.Hour},
	} {
		if d[0] != d[1] {
			t.Errorf("%s is %v, want %v", name, d[0], d[1])
		}
	}
	if c.Limits.Attempts != 1024 || c.Limits.Handshakes != 1000 || c.Limits.BatchHosts != 10_000 || c.Limits.BatchParallel != 1000 || c.Limits.CallerSessions != 8192 || c.Limits.AgentSessions != 20_000 || c.RetainBytes != 0 || c.Logger == nil || c.Now == nil || c.Dial == nil {
		t.Errorf("it is %+v", c)
	}
}

// What a configuration says is kept, up to the bounds; a default is never above its cap.
func TestConfigIsKeptWithinItsBounds(t *testing.T) {
	most := Config{
		RefreshHosts: 1, Heartbeat: 2, OfflineWait: 3, LostAfter: maxLostAfter, Retain: 4, RetainBytes: 5,
		Limits: Limits{MaxSilenceTimeout: time.Minute, MaxMaxExecTime: time.Hour, Attempts: maxAttempts, Handshakes: 6, BatchHosts: store.MaxBatchHosts, BatchParallel: 5, BatchPause: time.Minute, CallerSessions: 7, AgentSessions: 8, PerPrincipal: PrincipalLimits{1, 2, 3, 4}},
	}
	c, err := most.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.RefreshHosts != 1 || c.Heartbeat != 2 || c.OfflineWait != 3 || c.LostAfter != maxLostAfter || c.Retain != 4 || c.RetainBytes != 5 {
		t.Errorf("it is %+v", c)
	}
	if want := (Limits{time.Minute, time.Hour, time.Minute, time.Hour, maxAttempts, 6, store.MaxBatchHosts, 5, time.Minute, 7, 8, PrincipalLimits{1, 2, 3, 4}}); c.Limits != want {
		t.Errorf("its limits are %+v, want %+v", c.Limits, want)
	}
	for field, cfg := range map[string]Config{
		"lost_after":           {LostAfter: maxLostAfter + 1},
		"retain_bytes":         {RetainBytes: -1},
		"limits.handshakes":    {Limits: Limits{Handshakes: -1}},
		"limits.per_principal": {Limits: Limits{PerPrincipal: PrincipalLimits{Waiting: -1}}},
		"limits.attempts":      {Limits: Limits{Attempts: maxAttempts + 1}},
		"limits.batch_hosts":   {Limits: Limits{BatchHosts: store.MaxBatchHosts + 1}},
	} {
		_, err := cfg.withDefaults()
		var wrong *harp.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: error is %v", field, err)
		}
	}
}

// TestSessionsOfAllAgentsAreBounded: an agent beyond them is let in when another has gone, and as many as come are refused.
func TestSessionsOfAllAgentsAreBounded(t *testing.T) {
	limits, err := Config{Limits: Limits{AgentSessions: 2}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ps := newPrincipals(limits.Limits)
	agent := func(n int) harp.Principal { return harp.Principal{Kind: agentKind, Name: fmt.Sprint("web", n)} }
	for n := range 100 {
		hear, err := ps.beginSession(agent(n))
		if in := n < 2; in != (err == nil) || hear != (n < 2+politeRefusals) || !in && !errors.Is(err, harp.ErrRefused) {
			t.Fatalf("agent %d is heard %v: %v", n, hear, err)
		}
	}
	if _, err := ps.beginSession(harp.Principal{Kind: "caller", Name: "ada"}); err != nil {
		t.Errorf("a caller is refused: %v", err)
	}
	ps.endSession(agent(1), nil)
	for n := 2; n < 2+politeRefusals; n++ {
		ps.endSession(agent(n), harp.ErrRefused)
	}
	if hear, err := ps.beginSession(agent(0)); !hear || err != nil {
		t.Errorf("another session of one that is in: %v", err)
	}
	if hear, err := ps.beginSession(agent(1)); !hear || err == nil {
		t.Errorf("beyond them, heard %v: %v", hear, err)
	}
	ps.endSession(agent(1), harp.ErrRefused)
	ps.endSession(agent(0), nil)
	if _, err := ps.beginSession(agent(100)); err != nil {
		t.Errorf("with one: %v", err)
	}
	if b := ps.boundsOfAll(); b[0].Used != 1 || b[1].Used != 2 {
		t.Errorf("the bounds are %+v", b)
	}
}
