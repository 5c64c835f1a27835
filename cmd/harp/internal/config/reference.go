package config

import (
	"fmt"
	"strings"
)

// Key is a field of a configuration file. What is said of it here is what the help,
// docs/configuration.md and the configuration that a program prints say.
type Key struct {
	Name    string // as tls.cert
	Type    string
	Default string // as it would be written; "": none, or what Meaning says
	Meaning string
	Live    bool // a change counts as soon as the file is read again
}

// Keys of both programs.
var (
	tlsKeys = []Key{
		{Name: "tls.cert", Type: "file", Meaning: "required: the program's certificate in PEM form, with the identity harp://FLEET/ROLE/NAME", Live: true},
		{Name: "tls.key", Type: "file", Meaning: "required: the key of the certificate", Live: true},
		{Name: "tls.ca", Type: "file", Meaning: "required: the authorities that must have signed the certificates of peers"},
	}
	logKeys = []Key{
		{Name: "log.level", Type: "word", Default: "info", Meaning: "what is logged to stderr: debug, info, warn or error", Live: true},
		{Name: "log.format", Type: "word", Default: "text", Meaning: "text or json"},
	}
)

// DispatcherKeys are the fields of a dispatcher's file.
func DispatcherKeys() []Key {
	return join([]Key{
		{Name: "listen", Type: "host:port", Default: ":7440", Meaning: "where agents and callers connect"},
		{Name: "data", Type: "folder", Meaning: "required: the store"},
	}, tlsKeys, []Key{
		{Name: "hosts", Type: "list", Meaning: "hosts besides those that dial in, each with name, address (where to dial it; none: it dials in) and labels", Live: true},
		{Name: "hosts_script", Type: "list of texts", Meaning: "instead of hosts: a program, with arguments, that prints them: on each line a JSON object with name, address and labels. The previous hosts stay if it fails, takes more than 2 minutes, or prints nothing (an empty line says that there are none), a wrong line or more than 64 MiB", Live: true},
		{Name: "hosts_refresh", Type: "duration", Default: "15m", Meaning: "how often the hosts are read again"},
		{Name: "heartbeat", Type: "duration", Default: "10s", Meaning: "how often connections show that they are alive; less often with so many agents that this would exceed 200 a second"},
		{Name: "offline_wait", Type: "duration", Default: "30s", Meaning: "how long an absent host may hold up a call that does not set this itself"},
		{Name: "lost_after", Type: "duration", Default: "1d", Meaning: "how long a host may be silent before its jobs end as lost, and how long a connected agent may owe the end of a job; at most 6d"},
		{Name: "retain", Type: "duration", Default: "30d", Meaning: "how long ended jobs and events are kept; none: for ever"},
		{Name: "retain_bytes", Type: "bytes", Meaning: "how many bytes of ended jobs are kept: those that ended first are deleted. By default any amount"},
		{Name: "time_zone", Type: "text", Default: "UTC", Meaning: "the time zone, such as Europe/Madrid, of schedules that are put without one; they keep it"},
		{Name: "documents", Type: "folder", Meaning: "its files *.yaml and *.yml say which schedules, groups, maintenance windows and notifications there are, as for harp schedule apply --prune, managed by the folder's name. They are read at the start, when one changes, and on SIGHUP; if something is wrong, all stays as it was, and the log, an event and harp doctor say why"},
		{Name: "notifications.secrets", Type: "folder", Meaning: "the secrets of webhooks: files, each with one whsec_..., that notifications name. They are read at each try. Without it no webhook is called"},
		{Name: "notifications.networks", Type: "list of networks", Meaning: "addresses that webhooks, and URLs of calendars, may be at besides the public Internet, and by http too, such as 10.1.0.0/16; by default none of the dispatcher's own networks"},
		{Name: "notifications.ca", Type: "file", Meaning: "authorities, in PEM form, that certificates of receivers, and of servers of calendars, may be signed by besides the system's"},
		{Name: "notifications.mail.server", Type: "host:port", Meaning: "the server that sends mail; without a port 587, or 465 or 25 as security says. Without it no mail is sent"},
		{Name: "notifications.mail.from", Type: "text", Meaning: "the address that mail is from, such as harp@example.org"},
		{Name: "notifications.mail.user", Type: "text", Meaning: "whom the dispatcher logs in as; by default it does not"},
		{Name: "notifications.mail.password_file", Type: "file", Meaning: "the password of the user, read at each try"},
		{Name: "notifications.mail.security", Type: "word", Default: "starttls", Meaning: "starttls, which must succeed; implicit: TLS from the first byte on; or none, for a server on the same machine"},
		{Name: "calendars.tokens", Type: "folder", Meaning: "what is sent to servers of calendars: a file cal.example.org, or cal.example.org:8443, holds the token that this host gets by https, as Authorization: Bearer. It is read at each fetch. By default nothing is sent"},
		{Name: "space.low", Type: "bytes", Meaning: "free space on the store's disk below which calls are refused; default 5 % of the disk, at least 256MiB or a quarter of the disk, at most 5GiB"},
		{Name: "space.critical", Type: "bytes", Meaning: "free space below which only cancels and deletes are accepted; default a quarter of space.low, more while the store is being compacted"},
		{Name: "limits.silence_timeout", Type: "duration", Default: "10m", Meaning: "the longest silence between records for calls that do not set it; procedures without records have none"},
		{Name: "limits.max_exec_time", Type: "duration", Default: "1d", Meaning: "the longest run for calls that do not set it"},
		{Name: "limits.max_silence_timeout", Type: "duration", Default: "none", Meaning: "the longest silence timeout that a call may ask for"},
		{Name: "limits.max_max_exec_time", Type: "duration", Default: "none", Meaning: "the longest max_exec_time that a call may ask for"},
		{Name: "limits.attempts", Type: "number", Default: "1024", Meaning: "how many attempts may be under way on one host; at most 4096"},
		{Name: "limits.handshakes", Type: "number", Default: "1000", Meaning: "how many connections a second are greeted from addresses that have shown a good certificate, and as many from others"},
		{Name: "limits.batch_hosts", Type: "number", Default: "10000", Meaning: "how many hosts the target of a batch may select; at most 100000"},
		{Name: "limits.batch_parallel", Type: "number", Default: "1000", Meaning: "how many members of a batch may be under way at a time, and how many are if it does not set this"},
		{Name: "limits.batch_pause", Type: "duration", Default: "1d", Meaning: "how long a batch may be paused before it is cancelled"},
		{Name: "limits.caller_sessions", Type: "number", Default: "8192", Meaning: "how many sessions all callers together may have at a time; while more than half are in use, one caller has at most a 16th"},
		{Name: "limits.agent_sessions", Type: "number", Default: "20000", Meaning: "how many sessions all agents that dial in may have at a time"},
		{Name: "limits.per_principal.sessions", Type: "number", Default: "4096", Meaning: "how many sessions one principal (a caller, by its certificate) may have at a time; an agent may have 16, counting those being refused"},
		{Name: "limits.per_principal.waiting", Type: "number", Default: "100000", Meaning: "how many jobs of one principal may wait to start; beyond that its calls are refused"},
		{Name: "limits.per_principal.bytes_per_hour", Type: "bytes", Default: "10GiB", Meaning: "how much the calls of one principal, with what they return, may make the dispatcher store in an hour; beyond that its calls are refused until there is room. What it pauses, cancels, deletes and changes has a sixteenth as much for itself. A restart begins a new hour"},
		{Name: "limits.per_principal.queues", Type: "number", Default: "20000", Meaning: "how many queues one principal may have: those with its live jobs, and those it paused or gave a concurrency; more are refused"},
	}, logKeys)
}

// AgentKeys are the fields of an agent's file.
func AgentKeys() []Key {
	return join([]Key{
		{Name: "name", Type: "text", Meaning: "the host's name, which must be the certificate's; by default it is"},
		{Name: "dispatchers", Type: "list of host:port", Meaning: "where to dial the dispatcher, again and again; several addresses, tried in random order, should lead to one dispatcher. This or listen is required"},
		{Name: "listen", Type: "host:port", Meaning: "where the dispatcher or direct callers can dial it"},
	}, tlsKeys, []Key{
		{Name: "dir", Type: "folder", Meaning: "holds the journal, of what the agent runs and has run until the dispatcher has it, and the output of its commands. Without it these are in memory and lost with the agent"},
		{Name: "labels", Type: "map", Meaning: "the host's labels, at most 16 texts"},
		{Name: "procedures", Type: "folder", Meaning: "its files *.yaml and *.yml declare commands as procedures; they are read again when they change", Live: true},
		{Name: "exec", Type: "map", Meaning: "offers the procedure exec, which runs any command that callers name; {} sets no bounds"},
		{Name: "exec.user", Type: "text", Meaning: "the user that commands run as; default: the agent's"},
		{Name: "exec.group", Type: "text", Meaning: "the group; default: the user's"},
		{Name: "exec.commands", Type: "list of texts", Meaning: "the programs that may be run, exactly as callers must name them; default: any"},
		{Name: "exec.dirs", Type: "list of folders", Meaning: "where commands may run, subfolders included; default: anywhere"},
		{Name: "exec.env", Type: "list of texts", Meaning: "the variables that a call may set"},
		{Name: "exec.pass_env", Type: "list of texts", Meaning: "the agent's own variables that commands inherit"},
		{Name: "exec.silence_timeout", Type: "duration", Meaning: "the longest silence between records"},
		{Name: "exec.max_exec_time", Type: "duration", Meaning: "the longest run"},
		{Name: "exec.grace", Type: "duration", Meaning: "the time from TERM to KILL; default 10s"},
		{Name: "exec.private_tmp", Type: "true or false", Meaning: "gives each command an empty /tmp of its own, as for procedures; the agent must be root"},
		{Name: "demo", Type: "true or false", Default: "false", Meaning: "offers the demonstration procedures; disk.usage and log.follow read whatever the agent's user may read"},
		{Name: "max_attempts", Type: "number", Default: "1024", Meaning: "how many attempts may be running or being reported; beyond that, or above 32 MiB of requests, the agent is busy"},
		{Name: "max_journal", Type: "bytes", Default: "1GiB", Meaning: "what the agent may hold of all attempts, at most half of it in the output files of commands; the journal's part may take twice as much on disk. 64MiB without dir"},
		{Name: "max_job_spool", Type: "bytes", Default: "64MiB", Meaning: "the records and result of one attempt, at most half of it in its command's output file"},
		{Name: "grace", Type: "duration", Default: "5s", Meaning: "how long Go procedures, and commands without dir, may go on when the agent is told to stop; then as long for the dispatcher to take the last results"},
	}, logKeys)
}

func join(lists ...[]Key) []Key {
	var all []Key
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Help is a reference of keys as text.
func Help(keys []Key) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "  %s: %s", k.Name, k.Type)
		if k.Default != "" {
			fmt.Fprintf(&b, " (%s)", k.Default)
		}
		b.WriteByte('\n')
		for _, line := range wrap(k.Meaning, helpWidth) {
			b.WriteString("      " + line + "\n")
		}
	}
	return b.String()
}

// helpWidth is how long a line of the help may be.
const helpWidth = 78

// wrap breaks a text into lines.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// Markdown is docs/configuration.md: a reference of both files.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`<!-- Made by go generate ./cmd/harp/internal/config; do not edit. -->

# Configuration

` + "`harp dispatcher` and `harp agent` each read a YAML file: " +
		"`/etc/harp/dispatcher.yaml` and `/etc/harp/agent.yaml`, or the one that `--config` names. " +
		"Unknown fields are refused. Relative paths are relative to the file. " +
		"`--check-config` only says what is wrong, with file, line and field; " +
		"`--print-config` prints the file with the defaults filled in.\n\n" +
		"Durations are written as `90s`, `1h30m` or `30d`, and `none` means no limit; bytes as `1048576`, `512MiB` or `10GiB`.\n\n" +
		"On SIGHUP the program reads its file again. Fields with \"yes\" under \"reload\" take effect then; " +
		"other changes are named in the log and wait for a restart. An invalid file changes nothing, and the log says why.\n")
	table(&b, "Dispatcher", DispatcherKeys())
	table(&b, "Agent", AgentKeys())
	return b.String()
}

func table(b *strings.Builder, title string, keys []Key) {
	fmt.Fprintf(b, "\n## %s\n\n| field | type | default | reload | meaning |\n|---|---|---|---|---|\n", title)
	for _, k := range keys {
		byDefault, live := "", ""
		if k.Default != "" {
			byDefault = "`" + k.Default + "`"
		}
		if k.Live {
			live = "yes"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, byDefault, live, strings.ReplaceAll(k.Meaning, "|", `\|`))
	}
}
