package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/transport"
	"github.com/harpcaller/harp/transport/devca"
)

// write writes a file in a folder with the certificates main, of a dispatcher, and
// web01, of an agent.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	ca, err := devca.Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]transport.Role{"main": transport.RoleDispatcher, "web01": transport.RoleAgent} {
		if err := ca.WriteFiles(dir, name, transport.Identity{Fleet: "test", Role: role, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "harp.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	dispatcherTLS = "tls: {cert: main.crt, key: main.key, ca: ca.crt}\n"
	agentTLS      = "tls: {cert: web01.crt, key: web01.key, ca: ca.crt}\n"
)

func TestReadDispatcher(t *testing.T) {
	path := write(t, dispatcherTLS+`
listen: 127.0.0.1:7440
data: data
hosts:
  - {name: web01, address: 10.0.0.1, labels: {role: web}}
  - name: web02
hosts_refresh: 5m
heartbeat: 3s
offline_wait: 1m
lost_after: 2d
retain: 90d
retain_bytes: 10 GiB
time_zone: Europe/Madrid
space: {low: 2GiB, critical: 536870912}
limits: {silence_timeout: 1m, max_exec_time: 1h, max_silence_timeout: none, max_max_exec_time: 24h, attempts: 10, handshakes: 20, batch_hosts: 30, batch_parallel: 40, batch_pause: 2h, caller_sessions: 50, agent_sessions: 60, per_principal: {sessions: 3, waiting: 4, bytes_per_hour: 5MiB, queues: 6}}
log: {level: debug, format: json}
`)
	d, err := config.ReadDispatcher(path)
	if err != nil {
		t.Fatal(err)
	}
	if d.Data != filepath.Join(filepath.Dir(path), "data") || d.Listen != "127.0.0.1:7440" || d.TLSConfig() == nil || d.Log.Format != "json" {
		t.Errorf("read %+v", d)
	}
	got := d.Config()
	if got.TLS == nil {
		t.Error("there is no certificate to dial with")
	}
	if got.Calendars == nil || got.Calendars.Check("https://10.1.0.1/") == nil {
		t.Error("calendars are not fetched as they are to be")
	}
	got.TLS, got.Calendars = nil, nil
	want := dispatcher.Config{
		Hosts: dispatcher.StaticHosts{
			{Name: "web01", Address: "10.0.0.1", Labels: map[string]string{"role": "web"}},
			{Name: "web02"},
		},
		RefreshHosts: 5 * time.Minute, Heartbeat: 3 * time.Second, OfflineWait: time.Minute,
		LostAfter: 48 * time.Hour, Retain: 90 * 24 * time.Hour, RetainBytes: 10 << 30, TimeZone: "Europe/Madrid",
		Limits: dispatcher.Limits{
			SilenceTimeout: time.Minute, MaxExecTime: time.Hour,
			MaxSilenceTimeout: harp.NoLimit, MaxMaxExecTime: 24 * time.Hour, Attempts: 10, Handshakes: 20, BatchHosts: 30, BatchParallel: 40, BatchPause: 2 * time.Hour,
			CallerSessions: 50, AgentSessions: 60,
			PerPrincipal: dispatcher.PrincipalLimits{Sessions: 3, Waiting: 4, Queues: 6, BytesPerHour: 5 << 20},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the library gets\n%+v, want\n%+v", got, want)
	}
	if got := d.Store(); got.LowSpace != 2<<30 || got.CriticalSpace != 512<<20 {
		t.Errorf("the store gets %+v", got)
	}
}

func TestReadDispatcherScript(t *testing.T) {
	for script, want := range map[string]string{"list-hosts": "list-hosts", "./hosts": "/hosts", "/usr/bin/hosts": "/usr/bin/hosts"} {
		d, err := config.ReadDispatcher(write(t, dispatcherTLS+"data: data\nhosts_script: ["+script+", --all]\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := d.Config().Hosts.(dispatcher.HostScript).Command
		if !strings.HasSuffix(got[0], want) || filepath.IsAbs(want) != filepath.IsAbs(got[0]) || got[1] != "--all" {
			t.Errorf("script %s is run as %q", script, got)
		}
	}
}

func TestReadAgent(t *testing.T) {
	a, err := config.ReadAgent(write(t, agentTLS+`
dispatchers: [harp.example, "harp2.example:7000", "[::1]:1"]
listen: :7442
labels: {role: web}
demo: true
dir: journal
max_attempts: 5
max_journal: 2GiB
max_job_spool: 1 MiB
grace: 3s
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"harp.example:7440", "harp2.example:7000", "[::1]:1"}; !slices.Equal(a.Dispatchers, want) {
		t.Errorf("dials %q, want %q", a.Dispatchers, want)
	}
	got := a.Config()
	if got.Name != "web01" || got.TLS == nil || got.Labels["role"] != "web" || got.Limits.MaxAttempts != 5 || got.Limits.Grace != 3*time.Second ||
		got.Limits.MaxJournal != 2<<30 || got.Limits.MaxJobSpool != 1<<20 || filepath.Base(got.Dir) != "journal" || !filepath.IsAbs(got.Dir) || !a.Demo {
		t.Errorf("the library gets %+v", got)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	dispatcherFile := func(path string) error { _, err := config.ReadDispatcher(path); return err }
	agentFile := func(path string) error { _, err := config.ReadAgent(path); return err }
	for _, test := range []struct {
		read func(string) error
		text string
		want []string // each in the error, behind the file's name
	}{
		{dispatcherFile, dispatcherTLS + "data: x\nfoo: 1\n", []string{":3: foo: is unknown"}},
		{dispatcherFile, "data: x\ntls:\n  cert: main.crt\n  kee: x\n", []string{":4: tls.kee: is unknown"}},
		{dispatcherFile, "hosts:\n- name: a\n  where: b\n- {name: b, x: y}\n", []string{":3: hosts[0].where: is unknown", ":4: hosts[1].x: is unknown"}},
		{dispatcherFile, "data: x\ndata: y\n", []string{`:2: data: mapping key "data" already defined at line 1`}},
		{dispatcherFile, "heartbeat: 5\n", []string{`:1: heartbeat: must be a duration such as 5s or 1h30m, is "5"`}},
		{dispatcherFile, "offline_wait: -5s\n", []string{`:1: offline_wait: must be a duration`}},
		{dispatcherFile, "limits: {attempts: many}\n", []string{":1: limits.attempts: must be a whole number, is many"}},
		{dispatcherFile, dispatcherTLS + "data: x\nlimits: {per_principal: {queues: -1}}\n", []string{":3: limits.per_principal: must not be negative"}},
		{dispatcherFile, "limits: 5\n", []string{":1: limits: must be a map, is 5"}},
		{dispatcherFile, "hosts: 5\n", []string{":1: hosts: must be a list, is 5"}},
		{dispatcherFile, "listen: [a]\n", []string{":1: listen: must be a text"}},
		{dispatcherFile, "log: {level: loud}\n", []string{":1: log.level: must be debug, info, warn or error, is loud"}},
		{dispatcherFile, "log: {format: xml}\n", []string{":1: log.format: must be text or json, is xml"}},
		{dispatcherFile, "listen: 'a\n", []string{":2: found unexpected end of stream"}},
		{dispatcherFile, "a: b\n---\nc: d\n", []string{": must be one document"}},
		{dispatcherFile, "just text\n", []string{":1: must be a map, is just text"}},
		{dispatcherFile, "", []string{": data: is missing", ": tls.cert: is missing", ": tls.key: is missing", ": tls.ca: is missing"}},
		{dispatcherFile, dispatcherTLS + "listen: ''\ndata: x\n", []string{":2: listen: must be host:port"}},
		{dispatcherFile, dispatcherTLS + "data: x\nhosts: [{name: a}]\nhosts_script: [x]\n", []string{":4: hosts_script: cannot be combined with hosts"}},
		{dispatcherFile, dispatcherTLS + "data: x\nhosts:\n- {address: a}\n", []string{":4: hosts[0].name: is missing"}},
		{dispatcherFile, dispatcherTLS + "data: x\nlimits: {attempts: -1}\n", []string{":3: limits.attempts: must not be negative"}},
		{dispatcherFile, "time_zone: Mars/Phobos\n", []string{":1: time_zone: must be a time zone"}},
		{dispatcherFile, "lost_after: 7d\n", []string{":1: lost_after: must be at most 6d"}},
		{dispatcherFile, "retain: 3x\n", []string{":1: retain: must be a duration"}},
		{dispatcherFile, "retain: 1.5d\n", []string{":1: retain: must be a duration"}},
		{dispatcherFile, "retain: -1d\n", []string{":1: retain: must be a duration"}},
		{dispatcherFile, "retain_bytes: 10GB\n", []string{":1: retain_bytes: must be a number of bytes"}},
		{dispatcherFile, "retain_bytes: 9999999TiB\n", []string{":1: retain_bytes: must be a number of bytes"}},
		{dispatcherFile, "space: {low: 0}\n", []string{":1: space.low: must be a number of bytes"}},
		{dispatcherFile, "space: {low: 1MiB, critical: 1GiB}\n", []string{":1: space.critical: must not be more than low"}},
		{dispatcherFile, agentTLS + "data: x\n", []string{":1: tls.cert: names the role agent"}},
		{dispatcherFile, "data: x\ntls: {cert: none.crt, key: main.key, ca: ca.crt}\n", []string{":2: tls: certificate: open "}},
		{dispatcherFile, "data: x\ntls: {cert: main.crt, key: web01.key, ca: ca.crt}\n", []string{":2: tls: certificate "}},
		{agentFile, agentTLS, []string{": dispatchers: is missing"}},
		{agentFile, "name: web02\ndispatchers: [a]\n" + agentTLS, []string{":1: name: is web02, but the certificate is for web01"}},
		{agentFile, agentTLS + "dispatchers: [a]\ndemo: perhaps\n", []string{":3: demo: must be true or false, is perhaps"}},
		{agentFile, agentTLS + "dispatchers: [a]\nlabels: {a: [b]}\n", []string{":3: labels.a: must be a text"}},
		{agentFile, agentTLS + "dispatchers: [a]\nmax_attempts: -1\n", []string{":3: max_attempts: must not be negative"}},
		{agentFile, agentTLS + "dispatchers: [a]\nmax_attempts: 9999999\n", []string{":3: max_attempts: must be from 1 to"}},
		{agentFile, agentTLS + "dispatchers: [a]\nlabels:\n  k: '" + strings.Repeat("v", 300) + "'\n", []string{":3: labels: is 300 bytes, at most 256"}},
		{agentFile, agentTLS + "dispatchers: [a]\nexec:\n  env: [LD_PRELOAD]\n", []string{":4: exec.env: LD_PRELOAD decides which code runs"}},
		{agentFile, agentTLS + "dispatchers: [a]\nexec:\n  user: nobody\n  dirs: [relative]\n", []string{":5: exec.dirs: must be absolute paths"}},
		{agentFile, dispatcherTLS + "dispatchers: [a]\n", []string{":1: tls.cert: names the role dispatcher"}},
	} {
		path := write(t, test.text)
		err := test.read(path)
		if !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), path+want) {
				t.Errorf("%q:\n%v\nlacks %s", test.text, err, want)
			}
		}
	}
}

func TestReadOfNoFile(t *testing.T) {
	if _, err := config.ReadAgent(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
