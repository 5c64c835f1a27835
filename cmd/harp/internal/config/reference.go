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
		{Name: "tls.ca", Type: "file", Meaning: "required: the authorities whose certificates peers must have"},
	}
	logKeys = []Key{
		{Name: "log.level", Type: "word", Default: "info", Meaning: "debug, info, warn or error: what is logged, to stderr", Live: true},
		{Name: "log.format", Type: "word", Default: "text", Meaning: "text or json"},
	}
)

// DispatcherKeys are the fields of a dispatcher's file.
func DispatcherKeys() []Key {
	return join([]Key{
		{Name: "listen", Type: "host:port", Default: ":7440", Meaning: "where agents and callers connect"},
		{Name: "data", Type: "folder", Meaning: "required: the store"},
	}, tlsKeys, []Key{
		{Name: "hosts", Type: "list", Meaning: "hosts beside those that dial in, each with name, address (where it is dialled; none: it dials in) and labels", Live: true},
		{Name: "hosts_script", Type: "list of texts", Meaning: "instead of hosts: a program and its arguments that prints them, one JSON object with name, address and labels a line; if it fails, takes longer than 2 minutes, prints more than 64 MiB or a line is wrong, those from before stay", Live: true},
		{Name: "hosts_refresh", Type: "duration", Default: "15m", Meaning: "how often the hosts are read again"},
		{Name: "heartbeat", Type: "duration", Default: "10s", Meaning: "how often connections show that they are alive; less often where there are so many agents that they and the dispatcher did so more than 200 times a second"},
		{Name: "offline_wait", Type: "duration", Default: "30s", Meaning: "how long its host's absence alone may hold a call that does not say so itself"},
		{Name: "lost_after", Type: "duration", Default: "1d", Meaning: "the silence of a host after which what it was doing ends as lost, and how long an agent that is connected may owe the end of a job; at most 6d"},
		{Name: "retain", Type: "duration", Default: "30d", Meaning: "how long jobs are kept after their end, and events; none: for ever"},
		{Name: "retain_bytes", Type: "bytes", Meaning: "how much of them is kept: those that ended first go; any amount if it is not said"},
		{Name: "space.low", Type: "bytes", Meaning: "free space on the store's disk below which no calls are taken; default 5 % of the disk, at least 256MiB or a quarter of the disk, at most 5GiB"},
		{Name: "space.critical", Type: "bytes", Meaning: "free space below which only cancels and deletes are taken; default a quarter of space.low, more where the store is being compacted"},
		{Name: "limits.silence_timeout", Type: "duration", Default: "10m", Meaning: "the longest silence between records, of calls that do not say one; procedures that yield no records have none"},
		{Name: "limits.max_exec_time", Type: "duration", Default: "1d", Meaning: "the longest run, of calls that do not say one"},
		{Name: "limits.max_silence_timeout", Type: "duration", Default: "none", Meaning: "the most that a call may ask for as its silence timeout"},
		{Name: "limits.max_max_exec_time", Type: "duration", Default: "none", Meaning: "the most that a call may ask for as its max_exec_time"},
		{Name: "limits.attempts", Type: "number", Default: "1024", Meaning: "how many attempts may be under way to one host; at most 4096"},
		{Name: "limits.handshakes", Type: "number", Default: "1000", Meaning: "how many connections are greeted in a second from addresses that have shown a good certificate, and as many from others"},
		{Name: "limits.per_principal.sessions", Type: "number", Default: "4096", Meaning: "how many sessions one principal, a caller by its certificate, may have at a time; more are refused. Of an agent 16, with those that are being refused"},
		{Name: "limits.per_principal.waiting", Type: "number", Default: "100000", Meaning: "how many jobs of one principal may wait to start; with so many, its calls are refused"},
		{Name: "limits.per_principal.bytes_per_hour", Type: "bytes", Default: "10GiB", Meaning: "how much the calls of one principal may make the dispatcher store in an hour, with what they return; beyond, its calls are refused until there is room, which begins anew with the program"},
		{Name: "limits.per_principal.queues", Type: "number", Default: "20000", Meaning: "how many queues one principal may have, with jobs of its that have not ended, or paused or given a concurrency by it; what would make another one is refused"},
	}, logKeys)
}

// AgentKeys are the fields of an agent's file.
func AgentKeys() []Key {
	return join([]Key{
		{Name: "name", Type: "text", Meaning: "the host's name; it must be the certificate's, and is that if it is not said"},
		{Name: "dispatchers", Type: "list of host:port", Meaning: "where to dial the dispatcher, again and again; several are alternatives, tried in random order, and should lead to one dispatcher. This or listen is required"},
		{Name: "listen", Type: "host:port", Meaning: "where to be dialled, by the dispatcher or by direct callers"},
	}, tlsKeys, []Key{
		{Name: "dir", Type: "folder", Meaning: "the journal: what the agent runs and has run, until the dispatcher has it, and what its commands print. Without it, that is in memory and lost with the agent"},
		{Name: "labels", Type: "map", Meaning: "what the host says of itself, at most 16 texts"},
		{Name: "procedures", Type: "folder", Meaning: "the files *.yaml and *.yml in it declare commands as procedures; they are read again when they change", Live: true},
		{Name: "exec", Type: "map", Meaning: "offers the procedure exec, which runs any command that callers name; {} sets it no bounds"},
		{Name: "exec.user", Type: "text", Meaning: "as whom commands run; default: as the agent"},
		{Name: "exec.group", Type: "text", Meaning: "the group; default: the user's"},
		{Name: "exec.commands", Type: "list of texts", Meaning: "the programs that may be run, as they must be named; any, if it is not said"},
		{Name: "exec.dirs", Type: "list of folders", Meaning: "where commands may run, and below; anywhere, if it is not said"},
		{Name: "exec.env", Type: "list of texts", Meaning: "the variables that a call may set"},
		{Name: "exec.pass_env", Type: "list of texts", Meaning: "the agent's own variables that commands see"},
		{Name: "exec.silence_timeout", Type: "duration", Meaning: "the longest silence between records"},
		{Name: "exec.max_exec_time", Type: "duration", Meaning: "the longest run"},
		{Name: "exec.grace", Type: "duration", Meaning: "from TERM to KILL; default 10s"},
		{Name: "exec.private_tmp", Type: "true or false", Meaning: "each command has an empty /tmp of its own, as of procedures; needs an agent that is root"},
		{Name: "demo", Type: "true or false", Default: "false", Meaning: "offers the demonstration procedures; disk.usage and log.follow read whatever the agent's user may read"},
		{Name: "max_attempts", Type: "number", Default: "1024", Meaning: "how many attempts run or are being told; beyond, and above 32 MiB of requests, the agent says that it is busy"},
		{Name: "max_journal", Type: "bytes", Default: "1GiB", Meaning: "of all that the agent holds of all attempts, with what commands keep for it, which is half of that at most; the journal's part may be twice as much on disk. 64MiB without dir"},
		{Name: "max_job_spool", Type: "bytes", Default: "64MiB", Meaning: "of one attempt's records and result; what its command keeps for the agent is half of that at most"},
		{Name: "grace", Type: "duration", Default: "5s", Meaning: "how long an agent that stops waits for its dispatcher to take the last results"},
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

` + "`harp dispatcher` and `harp agent` are configured by a file each, in YAML: " +
		"`/etc/harp/dispatcher.yaml` and `/etc/harp/agent.yaml`, or what `--config` names. " +
		"Fields that are not known are refused. Relative paths are relative to the file. " +
		"`--check-config` says what is wrong, with file, line and field, and does nothing else; " +
		"`--print-config` prints the file with the defaults filled in.\n\n" +
		"A duration is written as `90s`, `1h30m` or `30d`, and `none` is no limit; a number of bytes as `1048576`, `512MiB` or `10GiB`.\n\n" +
		"On SIGHUP the program reads its file again. What has \"yes\" under \"reload\" changes then; " +
		"what else has changed is named in the log and waits for a restart. A file that is bad changes nothing, and the log says why.\n")
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
