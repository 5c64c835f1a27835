package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/cmd/harp/internal/contexts"
	"github.com/harpcaller/harp/transport"
)

// examined is a doctor that prints nowhere.
func examined(t *testing.T) *doctor {
	t.Helper()
	var out bytes.Buffer
	return &doctor{cli: newCLI(nil, &out, &out, func(string) string { return "" })}
}

// told is what a doctor noted: the verdicts by what they are of, and all of it as text.
func (d *doctor) told() (verdicts map[string]string, text string) {
	verdicts = map[string]string{}
	for _, one := range d.checks {
		verdicts[one.What] = one.Status
		text += one.Status + " " + one.What + " " + one.Detail + " → " + one.Todo + "\n"
	}
	return verdicts, text
}

func TestDoctorLooksAtAHost(t *testing.T) {
	for _, test := range []struct {
		name string
		host harp.HostStatus
		want map[string]string
	}{
		{"all is well", harp.HostStatus{
			Online: true, LastHeard: noon, Procedures: []string{"a"}, Facts: value(t, map[string]any{"supervised": true}),
		}, map[string]string{"host h": fine, "procedures": fine, "commands": fine}},
		{"away", harp.HostStatus{LastHeard: noon, Error: "refused", Facts: value(t, map[string]any{})}, map[string]string{"host h": broken, "procedures": doubt}},
		{"problems", harp.HostStatus{
			Online: true, LastHeard: noon, Procedures: []string{"a"}, Facts: value(t, map[string]any{"supervised": true}),
			Problems: []harp.HostProblem{{Code: harp.ProblemCertificate, Text: "expires"}, {Code: harp.ProblemDuplicate, Text: "another"}, {Code: "later", Text: "unknown"}},
		}, map[string]string{"host h": fine, "procedures": fine, "commands": fine, "certificate": doubt, "duplicate": doubt, "later": doubt}},
		{"commands end with the agent", harp.HostStatus{
			Online: true, LastHeard: noon, Procedures: []string{"a"}, Facts: value(t, map[string]any{"supervised": false}),
		}, map[string]string{"host h": fine, "procedures": fine, "commands": doubt}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.host.Name = "h"
			d := examined(t)
			d.checkHost(t.Context(), harp.NewCaller(&fake{hosts: []harp.HostStatus{test.host}}), "h")
			got, text := d.told()
			for what, verdict := range test.want {
				if got[what] != verdict {
					t.Errorf("%s is %q, want %q in\n%s", what, got[what], verdict, text)
				}
			}
		})
	}
	d := examined(t)
	d.checkHost(t.Context(), harp.NewCaller(&fake{
		hosts: []harp.HostStatus{{Name: "h", Online: true}},
		jobs:  []harp.JobStatus{{ID: "stuck", Host: "h", State: harp.StateCancelling, Survivors: []int{11, 12}}, {ID: "fine", Host: "h", State: harp.StateRunning}},
	}), "h")
	if got, text := d.told(); got["job stuck"] != doubt || got["job fine"] != "" || !strings.Contains(text, "survive KILL: 11 12 →") {
		t.Errorf("said\n%s", text)
	}
	d = examined(t)
	d.hosts(t.Context(), harp.NewCaller(&fake{hosts: []harp.HostStatus{{Name: "a", Online: true}, {Name: "b"}}}))
	if got, text := d.told(); got["hosts"] != doubt || got["problems"] != "" || !strings.Contains(text, "1 online, 1 away → harp doctor b") {
		t.Errorf("said\n%s", text)
	}
}

func TestDoctorLooksAtTheClock(t *testing.T) {
	for off, want := range map[time.Duration]string{0: fine, time.Minute: doubt, -2 * time.Hour: broken} {
		d := examined(t)
		d.dispatcher(t.Context(), harp.NewCaller(&fake{clock: func() time.Time { return time.Now().Add(off) }}), "here")
		if got, text := d.told(); got["clock"] != want {
			t.Errorf("off by %v: %q, want %q in\n%s", off, got["clock"], want, text)
		}
	}
}

// What the dispatcher itself finds wrong is told, a line each.
func TestDoctorTellsTheDispatchersTroubles(t *testing.T) {
	d := examined(t)
	d.dispatcher(t.Context(), harp.NewCaller(&fake{clock: time.Now, troubles: []string{"clock: was set", "disk: is full"}}), "here")
	got, text := d.told()
	if got["dispatcher"] != doubt || !strings.Contains(text, "clock: was set") || !strings.Contains(text, "disk: is full → see the dispatcher's log") {
		t.Errorf("it says\n%s", text)
	}
}

// Bounds of which much is used are told; with --bounds all of them.
func TestDoctorLooksAtBounds(t *testing.T) {
	bounds := []harp.Bound{
		{Name: "answers", Used: 52 << 20, Most: 64 << 20, Unit: "bytes", Reason: "of all"},
		{Name: "sessions", Used: 79, Most: 100, Unit: "sessions", Reason: "of one"},
		{Name: "page", Most: 1 << 20, Unit: "bytes", Reason: "of an answer"},
	}
	for name, test := range map[string]struct {
		bounds []harp.Bound
		want   string
		says   string
	}{
		"nearly used up":        {bounds, doubt, "warn bounds answers: 52 MiB of 64 MiB: of all"},
		"room":                  {bounds[1:], fine, "less than 80 % of each is used"},
		"an older dispatcher's": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := examined(t)
			d.dispatcher(t.Context(), harp.NewCaller(&fake{clock: time.Now, bounds: test.bounds}), "here")
			if got, text := d.told(); got["bounds"] != test.want || !strings.Contains(text, test.says) {
				t.Errorf("it says\n%s", text)
			}
		})
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 2172 << 10: "2.1 MiB", 10 << 30: "10 GiB", 5 << 50: "5120 TiB"} {
		if got := quantity(n, "bytes"); got != want {
			t.Errorf("%d bytes are %s, want %s", n, got, want)
		}
	}
}

// TestDoctorShowsAllBounds: those of the dispatcher, whatever they are, and those of an agent.
func TestDoctorShowsAllBounds(t *testing.T) {
	var out bytes.Buffer
	d := &doctor{cli: newCLI(nil, &out, &out, func(string) string { return "" }), showBounds: true}
	d.bounds = []harp.Bound{{Name: "one", Used: 1 << 20, Most: 2 << 20, Unit: "bytes", Reason: "of the dispatcher"}, {Name: "two", Most: 3, Unit: "calls", Reason: "likewise"}}
	if err := d.printReport(); err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(strings.Fields(out.String()), " ")
	for _, b := range append(d.bounds, agent.Bounds()...) {
		if !strings.Contains(shown, b.Name) || !strings.Contains(shown, quantity(b.Most, b.Unit)) {
			t.Errorf("%s, %s, is not shown", b.Name, quantity(b.Most, b.Unit))
		}
	}
	out.Reset()
	d.showBounds = false
	if err := d.printReport(); err != nil || strings.Contains(out.String(), "of an agent") {
		t.Errorf("nobody asked: %v\n%s", err, out.String())
	}
}

func TestDoctorLooksAtCertificates(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for _, test := range []struct {
		name        string
		role        transport.Role
		from, until time.Time
		authority   time.Time
		want        map[string]string
	}{
		{"all is well", transport.RoleCaller, now.Add(-day), now.Add(90 * day), now.Add(900 * day), map[string]string{"certificate": fine, "authority": fine}},
		{"expired", transport.RoleCaller, now.Add(-9 * day), now.Add(-day), now.Add(900 * day), map[string]string{"certificate": broken, "authority": fine}},
		{"not yet", transport.RoleCaller, now.Add(day), now.Add(90 * day), now.Add(900 * day), map[string]string{"certificate": broken, "authority": fine}},
		{"soon", transport.RoleCaller, now.Add(-day), now.Add(day), now.Add(900 * day), map[string]string{"certificate": doubt, "authority": fine}},
		{"of somebody else", transport.RoleAgent, now.Add(-day), now.Add(90 * day), now.Add(900 * day), map[string]string{"certificate": broken}},
		{"the authority expires", transport.RoleCaller, now.Add(-day), now.Add(day / 2), now.Add(day), map[string]string{"certificate": doubt, "authority": doubt}},
		{"the authority has expired", transport.RoleCaller, now.Add(-2 * day), now.Add(90 * day), now.Add(-day), map[string]string{"certificate": fine, "authority": broken}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := examined(t)
			d.certificates(issued(t, test.role, test.from, test.until, now.Add(-9*day), test.authority))
			got, text := d.told()
			for what, verdict := range test.want {
				if got[what] != verdict {
					t.Errorf("%s is %q, want %q in\n%s", what, got[what], verdict, text)
				}
			}
		})
	}
}

// An authority that is younger than what it signed, as one that was renewed with its key, is no
// fault; nor is an expired certificate one of its authority.
func TestDoctorLooksAtRenewedAuthorities(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for _, test := range []struct {
		name                       string
		from, until, authorityFrom time.Time
		certificate                string
	}{
		{"younger than the certificate", now.Add(-9 * day), now.Add(90 * day), now.Add(-day), fine},
		{"younger than the certificate that has expired", now.Add(-9 * day), now.Add(-2 * day), now.Add(-day), broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := examined(t)
			at := issued(t, transport.RoleCaller, test.from, test.until, test.authorityFrom, now.Add(900*day))
			d.certificates(at)
			if got, text := d.told(); got["certificate"] != test.certificate || got["authority"] != fine {
				t.Errorf("said\n%s", text)
			}
			if _, err := callerIdentity(at, now); (err == nil) != (test.certificate == fine) {
				t.Errorf("as a context: %v", err)
			}
		})
	}
}

// A bundle of authorities may still hold one that has expired.
func TestDoctorLooksAtTheAuthorityThatSigned(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	at := issued(t, transport.RoleCaller, now.Add(-day), now.Add(90*day), now.Add(-2*day), now.Add(900*day))
	old := issued(t, transport.RoleCaller, now.Add(-9*day), now.Add(-day), now.Add(-9*day), now.Add(-day))
	both, err := os.ReadFile(at.CA)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := os.ReadFile(old.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at.CA, append(expired, both...), 0o600); err != nil {
		t.Fatal(err)
	}
	d := examined(t)
	d.certificates(at)
	if got, text := d.told(); got["authority"] != fine {
		t.Errorf("said\n%s", text)
	}
	if _, err := callerIdentity(at, now); err != nil {
		t.Errorf("as a context: %v", err)
	}
	at.CA = old.CA
	if _, err := callerIdentity(at, now); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("a foreign authority: %v", err)
	}
}

// issued makes files of a certificate and its authority, with their dates.
func issued(t *testing.T, role transport.Role, from, until, authorityFrom, authority time.Time) contexts.Context {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: authorityFrom, NotAfter: authority,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{transport.Identity{Fleet: "test", Role: role, Name: "one"}.URI()},
	}
	var files [2][]byte
	for i, cert := range []*x509.Certificate{ca, leaf} {
		if files[i], err = x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, key); err != nil {
			t.Fatal(err)
		}
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return contexts.Context{
		Addr: "harp.example", CA: write("ca.crt", "CERTIFICATE", files[0]),
		Cert: write("one.crt", "CERTIFICATE", files[1]), Key: write("one.key", "PRIVATE KEY", secret),
	}
}
