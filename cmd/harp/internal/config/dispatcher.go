package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/internal/yamlfile"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/notify/mail"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/store/badger"
	"github.com/harpcaller/harp/transport"
)

// Dispatcher is the configuration of harp dispatcher.
type Dispatcher struct {
	Listen        string            `yaml:"listen"` // host:port for agents and callers; default :7440
	Data          string            `yaml:"data"`   // the folder of the store
	TLS           TLS               `yaml:"tls"`
	Hosts         []Host            `yaml:"hosts"`         // hosts beside those that dial in; or
	HostsScript   []string          `yaml:"hosts_script"`  // a program that prints them, one JSON object a line
	HostsRefresh  yamlfile.Duration `yaml:"hosts_refresh"` // how often it is run
	Heartbeat     yamlfile.Duration `yaml:"heartbeat"`
	OfflineWait   yamlfile.Duration `yaml:"offline_wait"`
	LostAfter     yamlfile.Duration `yaml:"lost_after"`    // of silence, when jobs are given up
	Retain        yamlfile.Duration `yaml:"retain"`        // how long jobs are kept after their end; none: for ever
	RetainBytes   yamlfile.Bytes    `yaml:"retain_bytes"`  // how much of them, at most
	TimeZone      string            `yaml:"time_zone"`     // of schedules that name none
	Documents     string            `yaml:"documents"`     // the folder of schedules, groups and windows
	Notifications Notifications     `yaml:"notifications"` // how their messages are sent, and which networks calendars may be in
	Calendars     Calendars         `yaml:"calendars"`     // how those of windows are fetched
	Space         Space             `yaml:"space"`
	Limits        Limits            `yaml:"limits"`
	Log           Log               `yaml:"log"`

	tls       *tls.Config
	senders   []notify.Sender
	calendars calendar.Source
}

// Host is a host of the registry.
type Host struct {
	Name    string            `yaml:"name"`
	Address string            `yaml:"address"` // where the dispatcher dials it; empty: it dials in
	Labels  map[string]string `yaml:"labels"`
}

// Notifications say how messages of notifications are sent.
type Notifications struct {
	Secrets  string   `yaml:"secrets"`  // the folder of the secrets of webhooks; empty: none is called
	Networks []string `yaml:"networks"` // that webhooks, and calendars, may be in beside the public Internet
	CA       string   `yaml:"ca"`       // certificates of authorities that are trusted beside the system's
	Mail     Mail     `yaml:"mail"`
}

// Calendars say how calendars of maintenance windows are fetched.
type Calendars struct {
	Tokens string `yaml:"tokens"` // the folder of what is sent to hosts; empty: nothing is
}

// Mail is the server that sends messages.
type Mail struct {
	Server       string `yaml:"server"` // empty: no mail is sent
	From         string `yaml:"from"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	Security     string `yaml:"security"`
}

// Space is how little room there may be on the disk of the store.
type Space struct {
	Low      yamlfile.Bytes `yaml:"low"`      // below it no calls are taken
	Critical yamlfile.Bytes `yaml:"critical"` // below it only cancels and deletes are
}

// Limits bound what callers may ask for.
type Limits struct {
	SilenceTimeout    yamlfile.Duration `yaml:"silence_timeout"`     // of calls that name none
	MaxExecTime       yamlfile.Duration `yaml:"max_exec_time"`       // of calls that name none
	MaxSilenceTimeout yamlfile.Duration `yaml:"max_silence_timeout"` // cap of what calls may name
	MaxMaxExecTime    yamlfile.Duration `yaml:"max_max_exec_time"`   // cap of what calls may name
	Attempts          int               `yaml:"attempts"`            // sent and not ended, a host
	Handshakes        int               `yaml:"handshakes"`          // a second
	BatchHosts        int               `yaml:"batch_hosts"`         // that a batch may select
	BatchParallel     int               `yaml:"batch_parallel"`      // members of a batch under way at a time
	BatchPause        yamlfile.Duration `yaml:"batch_pause"`         // how long one may be paused
	CallerSessions    int               `yaml:"caller_sessions"`     // of all callers
	AgentSessions     int               `yaml:"agent_sessions"`      // of all agents
	PerPrincipal      PrincipalLimits   `yaml:"per_principal"`
}

// PrincipalLimits bound what one principal may have.
type PrincipalLimits struct {
	Sessions     int            `yaml:"sessions"`
	Waiting      int            `yaml:"waiting"`        // jobs
	BytesPerHour yamlfile.Bytes `yaml:"bytes_per_hour"` // stored
	Queues       int            `yaml:"queues"`
}

// ReadDispatcher reads a dispatcher's file and its certificate. Errors: *yamlfile.Error,
// joined if there are several; os's.
func ReadDispatcher(path string) (*Dispatcher, error) {
	d := &Dispatcher{Listen: ":" + wire.DispatcherPort}
	f, err := yamlfile.Read(path, d)
	if err != nil {
		return nil, err
	}
	d.Data, d.Documents = f.Path(d.Data), f.Path(d.Documents)
	if len(d.HostsScript) > 0 {
		d.HostsScript[0] = f.Program(d.HostsScript[0])
	}
	var wrong []error
	if d.Data == "" {
		wrong = append(wrong, f.Errorf("data", "is missing: the folder of the store"))
	}
	if d.Listen == "" {
		wrong = append(wrong, f.Errorf("listen", "must be host:port"))
	}
	if len(d.Hosts) > 0 && len(d.HostsScript) > 0 {
		wrong = append(wrong, f.Errorf("hosts_script", "cannot be combined with hosts"))
	}
	for i, h := range d.Hosts {
		if h.Name == "" {
			wrong = append(wrong, f.Errorf(fmt.Sprintf("hosts[%d].name", i), "is missing"))
		}
	}
	for _, l := range []struct {
		name  string
		value int
	}{
		{"attempts", d.Limits.Attempts},
		{"handshakes", d.Limits.Handshakes},
		{"batch_hosts", d.Limits.BatchHosts},
		{"batch_parallel", d.Limits.BatchParallel},
		{"caller_sessions", d.Limits.CallerSessions},
		{"agent_sessions", d.Limits.AgentSessions},
	} {
		if l.value < 0 {
			wrong = append(wrong, f.Errorf("limits."+l.name, "must not be negative"))
		}
	}
	if p := d.Limits.PerPrincipal; p.Sessions < 0 || p.Waiting < 0 || p.Queues < 0 {
		wrong = append(wrong, f.Errorf("limits.per_principal", "must not be negative"))
	}
	if d.LostAfter > yamlfile.Duration(longestLostAfter) {
		wrong = append(wrong, f.Errorf("lost_after", "must be at most 6d, since agents remember for 7"))
	}
	if _, err := schedule.LoadZone(d.TimeZone); err != nil {
		wrong = append(wrong, f.Errorf("time_zone", "must be a time zone, such as Europe/Madrid"))
	}
	if s := d.Space; s.Low > 0 && s.Critical > s.Low {
		wrong = append(wrong, f.Errorf("space.critical", "must not be more than low"))
	}
	n := &d.Notifications
	n.Secrets, n.CA, n.Mail.PasswordFile = f.Path(n.Secrets), f.Path(n.CA), f.Path(n.Mail.PasswordFile)
	d.Calendars.Tokens = f.Path(d.Calendars.Tokens)
	if err := d.makeOutbound(f); err != nil {
		wrong = append(wrong, err)
	}
	d.tls, _, err = d.TLS.loadFiles(f, transport.RoleDispatcher)
	return d, errors.Join(append(wrong, err)...)
}

// makeOutbound makes what asks servers of others. Errors: *yamlfile.Error.
func (d *Dispatcher) makeOutbound(f *yamlfile.File) (err error) {
	n := &d.Notifications
	var authorities []string
	if n.CA != "" {
		authorities = []string{n.CA}
	}
	var networks []netip.Prefix
	for i, text := range n.Networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return f.Errorf(fmt.Sprintf("notifications.networks[%d]", i), "must be a network, such as 10.1.0.0/16")
		}
		networks = append(networks, network)
	}
	if d.calendars, err = calendar.New(calendar.Config{Networks: networks, CAFiles: authorities, Tokens: d.Calendars.Tokens}); err != nil {
		return senderError(f, "notifications", err)
	}
	d.senders, err = n.senders(f, networks, authorities)
	return err
}

// senders are what sends messages. Errors: *yamlfile.Error.
func (n *Notifications) senders(f *yamlfile.File, networks []netip.Prefix, authorities []string) (senders []notify.Sender, err error) {
	if n.Secrets != "" {
		s, err := notify.NewWebhooks(notify.WebhookConfig{Secrets: n.Secrets, Networks: networks, CAFiles: authorities})
		if err != nil {
			return nil, senderError(f, "notifications", err)
		}
		senders = append(senders, s)
	}
	if m := n.Mail; m.Server != "" {
		s, err := mail.New(mail.Config{
			Server: m.Server, From: m.From, User: m.User, PasswordFile: m.PasswordFile, Security: mail.Security(m.Security), CAFiles: authorities,
		})
		if err != nil {
			return nil, senderError(f, "notifications.mail", err)
		}
		senders = append(senders, s)
	}
	return senders, nil
}

// senderError says in which field of a file it is what a sender does not take.
func senderError(f *yamlfile.File, in string, err error) error {
	var field *harp.FieldError
	if errors.As(err, &field) {
		return f.Errorf(in+"."+field.Field, "%s", field.Message)
	}
	return f.Errorf("notifications.ca", "%s", err)
}

// longestLostAfter is what the library takes.
const longestLostAfter = 6 * 24 * time.Hour

// Store is how the store is opened.
func (d *Dispatcher) Store() badger.Options {
	return badger.Options{LowSpace: uint64(d.Space.Low), CriticalSpace: uint64(d.Space.Critical)} //nolint:gosec // never negative
}

// TLSConfig is the certificate with which the dispatcher listens and dials.
func (d *Dispatcher) TLSConfig() *tls.Config { return d.tls }

// Config is the configuration as the library takes it.
func (d *Dispatcher) Config() dispatcher.Config {
	l := d.Limits
	per := l.PerPrincipal
	return dispatcher.Config{
		Hosts:        d.source(),
		RefreshHosts: time.Duration(d.HostsRefresh),
		TLS:          d.tls,
		Heartbeat:    time.Duration(d.Heartbeat),
		OfflineWait:  time.Duration(d.OfflineWait),
		LostAfter:    time.Duration(d.LostAfter),
		Retain:       time.Duration(d.Retain),
		RetainBytes:  int64(d.RetainBytes),
		TimeZone:     d.TimeZone,
		Senders:      d.senders,
		Calendars:    d.calendars,
		Limits: dispatcher.Limits{
			SilenceTimeout:    time.Duration(l.SilenceTimeout),
			MaxExecTime:       time.Duration(l.MaxExecTime),
			MaxSilenceTimeout: time.Duration(l.MaxSilenceTimeout),
			MaxMaxExecTime:    time.Duration(l.MaxMaxExecTime),
			Attempts:          l.Attempts,
			Handshakes:        l.Handshakes,
			BatchHosts:        l.BatchHosts,
			BatchParallel:     l.BatchParallel,
			BatchPause:        time.Duration(l.BatchPause),
			CallerSessions:    l.CallerSessions,
			AgentSessions:     l.AgentSessions,
			PerPrincipal: dispatcher.PrincipalLimits{
				Sessions: per.Sessions, Waiting: per.Waiting, Queues: per.Queues, BytesPerHour: int64(per.BytesPerHour),
			},
		},
	}
}

// source is the hosts registry, nil if there is none.
func (d *Dispatcher) source() dispatcher.HostSource {
	if len(d.HostsScript) > 0 {
		return dispatcher.HostScript{Command: d.HostsScript}
	}
	if len(d.Hosts) == 0 {
		return nil
	}
	hosts := make(dispatcher.StaticHosts, len(d.Hosts))
	for i, h := range d.Hosts {
		hosts[i] = dispatcher.HostSpec{Name: h.Name, Address: h.Address, Labels: h.Labels}
	}
	return hosts
}
