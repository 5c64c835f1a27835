package command

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// interpreter is a program that executes some of its words: which of them those are.
type interpreter struct {
	code     string // the letters of options whose values are code
	file     string // ... files of code
	value    string // ... anything else
	attached string // ... anything else, and in the same word if there is one

	codes, files, values []string // the names of long options likewise
	programs             []string // of those that a program follows

	skip         int // how many operands come before those that matter
	operand      role
	programFlags string // letters of options after which the operands are a program
	programLongs []string

	shell    bool // -c says that the first operand is code, and + begins an option
	single   bool // long options begin with one -
	final    bool // what follows the code is no option
	permutes bool // options may follow operands
	assigns  bool // operands as NAME=value set variables
	remote   bool // its code is of another host
	harmless func(code string) bool
}

// role is what the operands of a program are that matter.
type role int

const (
	roleData    role = iota
	roleCode         // the first is code
	roleFile         // the first is a file of code; without it that is in stdin
	roleProgram      // they are a program and its words
	roleRest         // all of them are code
)

var (
	shell      = interpreter{shell: true, operand: roleFile, files: []string{"rcfile", "init-file"}}
	awk        = interpreter{code: "e", file: "fiEl", value: "vFW", codes: []string{"source"}, files: []string{"file", "exec", "include", "load"}, values: []string{"assign", "field-separator"}, operand: roleCode}
	sed        = interpreter{code: "e", file: "f", value: "l", attached: "i", codes: []string{"expression"}, files: []string{"file"}, values: []string{"line-length"}, operand: roleCode, permutes: true}
	secureHost = interpreter{code: "oI", file: "F", value: "BbcDEeiJLlmOpPQRSWwM", harmless: harmlessSetting, skip: 1, operand: roleRest, permutes: true, remote: true}
	secureCopy = interpreter{code: "oSD", file: "F", value: "BbcilPRX", harmless: harmlessSetting}
	javascript = interpreter{code: "epr", codes: []string{"eval", "print", "require", "import", "loader", "experimental-loader"}, operand: roleFile}
	pg         = interpreter{code: "c", file: "f", value: "dvhpULoFPRT", codes: []string{"command"}, files: []string{"file"}, values: []string{"dbname", "set", "variable", "host", "port", "username"}, permutes: true}
	mysql      = interpreter{code: "e", value: "hPuDS", attached: "p", codes: []string{"execute", "init-command"}, values: []string{"host", "port", "user", "database", "socket"}, permutes: true}
	vi         = interpreter{code: "c", file: "Su", codes: []string{"cmd"}, value: "TtrwW", permutes: true}
	maker      = interpreter{file: "f", value: "CIoW", attached: "jl", codes: []string{"eval"}, files: []string{"file", "makefile"}, values: []string{"directory", "include-dir"}, operand: roleRest, permutes: true}
	prefix     = interpreter{operand: roleProgram}
	copier     = interpreter{code: "e", value: "BfMT@", codes: []string{"rsh", "rsync-path"}, values: []string{"exclude", "include", "filter", "remote-option"}, permutes: true}
)

// interpreters are the programs that are known, by names without the digits at their ends.
var interpreters = map[string]*interpreter{
	"sh": &shell, "ash": &shell, "bash": &shell, "csh": &shell, "dash": &shell, "ksh": &shell, "mksh": &shell, "rbash": &shell, "tcsh": &shell, "yash": &shell, "zsh": &shell,
	"fish": {code: "cC", codes: []string{"command", "init-command"}, operand: roleFile},

	"python": {code: "cm", value: "WX", values: []string{"check-hash-based-pycs"}, operand: roleFile, final: true},
	"pypy":   {code: "cm", value: "WX", operand: roleFile, final: true},
	"perl":   {code: "eEMm", value: "I", attached: "0CdDFilVx", operand: roleFile},
	"ruby":   {code: "er", value: "CEI", attached: "0FKTWix", operand: roleFile},
	"lua":    {code: "el", operand: roleFile}, "luajit": {code: "elj", operand: roleFile},
	"node": &javascript, "nodejs": &javascript, "bun": &javascript,
	"php":     {code: "rBREdz", file: "fFc", value: "tS", operand: roleFile},
	"Rscript": {code: "e", operand: roleFile}, "R": {code: "e", file: "f", codes: []string{"args"}, files: []string{"file"}},
	"osascript": {code: "e", value: "l", operand: roleFile},
	"expect":    {code: "c", file: "f", operand: roleFile}, "tclsh": {operand: roleFile},
	"groovy": {code: "e", operand: roleFile}, "scala": {code: "e", operand: roleFile}, "elixir": {code: "er", operand: roleFile}, "guile": {code: "c", file: "ls", operand: roleFile},
	"julia": {code: "eE", file: "L", codes: []string{"eval", "print"}, operand: roleFile}, "racket": {code: "e", operand: roleFile},

	"awk": &awk, "gawk": &awk, "mawk": &awk, "nawk": &awk, "original-awk": &awk,
	"sed": &sed, "gsed": &sed, "ssed": &sed,
	"dc": {code: "e", file: "f", codes: []string{"expression"}, files: []string{"file"}, operand: roleFile}, "bc": {operand: roleFile},
	"psql": &pg, "mysql": &mysql, "mariadb": &mysql,
	"sqlite": {codes: []string{"cmd"}, files: []string{"init"}, values: []string{"separator", "newline", "nullvalue"}, single: true, skip: 1, operand: roleRest},
	"vi":     &vi, "vim": &vi, "nvim": &vi, "ex": &vi, "view": &vi,
	"emacs": {file: "l", code: "f", codes: []string{"eval", "execute", "funcall"}, files: []string{"load", "script"}, permutes: true},
	"gdb":   {codes: []string{"ex", "eval-command", "iex"}, files: []string{"x", "command", "ix"}, single: true, permutes: true},

	"ssh": &secureHost, "slogin": &secureHost, "autossh": &secureHost, "dbclient": &secureHost, "rsh": &secureHost,
	"scp": &secureCopy, "sftp": &secureCopy, "rsync": &copier,

	"su":      {code: "cs", value: "gGTw", codes: []string{"command", "session-command", "shell"}, values: []string{"group", "supp-group", "whitelist-environment"}, skip: 1, operand: roleRest, permutes: true},
	"runuser": {code: "cs", value: "gGTwu", codes: []string{"command", "session-command", "shell"}, values: []string{"user", "group", "supp-group"}, skip: 1, operand: roleRest, permutes: true, programFlags: "u", programLongs: []string{"user"}},

	"env":  {code: "S", value: "uC", codes: []string{"split-string"}, values: []string{"unset", "chdir"}, operand: roleProgram, assigns: true},
	"sudo": {value: "aCcDgGhpRrtTUu", values: []string{"auth-type", "close-from", "login-class", "chdir", "group", "host", "prompt", "chroot", "role", "type", "command-timeout", "other-user", "user"}, operand: roleProgram, assigns: true},
	"doas": {value: "Cu", operand: roleProgram},
	"nice": {value: "n", values: []string{"adjustment"}, operand: roleProgram}, "ionice": {value: "cnpPu", values: []string{"class", "classdata"}, operand: roleProgram},
	"chrt": {value: "TPD", skip: 1, operand: roleProgram}, "taskset": {skip: 1, operand: roleProgram},
	"timeout": {value: "ks", values: []string{"kill-after", "signal"}, skip: 1, operand: roleProgram},
	"nohup":   &prefix, "setsid": &prefix, "busybox": &prefix, "toybox": &prefix, "fakeroot": &prefix, "unbuffer": &prefix, "tini": &prefix, "dumb-init": &prefix, "command": &prefix, "exec": &prefix,
	"stdbuf": {value: "ioe", values: []string{"input", "output", "error"}, operand: roleProgram}, "time": {value: "fo", values: []string{"format", "output"}, operand: roleProgram},
	"chroot": {skip: 1, operand: roleProgram}, "setuidgid": {skip: 1, operand: roleProgram}, "su-exec": {skip: 1, operand: roleProgram}, "gosu": {skip: 1, operand: roleProgram},
	"unshare": {value: "SGRw", operand: roleProgram}, "nsenter": {value: "tSG", values: []string{"target"}, operand: roleProgram}, "sshpass": {value: "pfdP", operand: roleProgram},
	"flock":  {code: "c", codes: []string{"command"}, value: "wE", values: []string{"timeout", "wait", "conflict-exit-code"}, skip: 1, operand: roleProgram, permutes: true},
	"xargs":  {value: "aEIdLnPs", values: []string{"arg-file", "delimiter", "max-args", "max-procs", "max-chars"}, attached: "eil", operand: roleProgram},
	"strace": {value: "abeEIoOpPsSuUX", operand: roleProgram}, "ltrace": {value: "aADeFnopsuw", operand: roleProgram},
	"watch":  {value: "n", values: []string{"interval"}, operand: roleRest, programFlags: "x", programLongs: []string{"exec"}},
	"script": {code: "c", codes: []string{"command"}, value: "BEIOTmo", permutes: true}, "parallel": {value: "jNnLaIS", operand: roleRest},
	"find": {programs: []string{"exec", "execdir", "ok", "okdir"}, single: true, permutes: true},

	"tar": {code: "IF", value: "CbfgHKLNTVX", codes: []string{"to-command", "checkpoint-action", "use-compress-program", "rsh-command", "rmt-command", "info-script", "new-volume-script"}, permutes: true},
	"git": {code: "c", value: "C", codes: []string{"config-env", "exec-path"}, values: []string{"git-dir", "work-tree", "namespace"}, operand: roleCode}, "make": &maker, "gmake": &maker,
}

var loader = regexp.MustCompile(`^ld-(linux|musl)`)

// interpreterOf returns the program that a word names, if that is a known one, and how it
// is called.
func interpreterOf(word string) (string, *interpreter) {
	if hasMark(word) {
		return "", nil
	}
	base := filepath.Base(word)
	if loader.MatchString(base) {
		return base, &prefix
	}
	name := strings.TrimRight(base, "0123456789.")
	if of := interpreters[name]; of != nil {
		return name, of
	}
	return base, nil
}

// letter returns what follows an option of one letter. Of a word that is only called like
// a program nothing but its code is of interest.
func (p *interpreter) letter(letter string, executed bool) kind {
	switch {
	case strings.Contains(p.code, letter):
		return kindCode
	case !executed:
	case strings.Contains(p.file, letter):
		return kindFile
	case strings.Contains(p.value, letter):
		return kindValue
	}
	return kindAny
}

// long returns what follows a long option, the name of which may be shortened.
func (p *interpreter) long(name string, executed bool) kind {
	is := func(options []string) bool {
		return slices.ContainsFunc(options, func(o string) bool {
			return o == name || !p.single && name != "" && strings.HasPrefix(o, name)
		})
	}
	switch {
	case is(p.codes):
		return kindCode
	case !executed:
	case is(p.files):
		return kindFile
	case is(p.values):
		return kindValue
	case is(p.programs):
		return kindProgram
	}
	return kindAny
}

var sshSetting = regexp.MustCompile(`^\s*([A-Za-z0-9]+)[\s=]`)

// harmlessSettings are those of ssh_config(5) that callers may say a value of.
var harmlessSettings = []string{
	"addressfamily", "batchmode", "bindaddress", "ciphers", "compression", "connectionattempts", "connecttimeout", "hostkeyalgorithms", "hostname",
	"kexalgorithms", "loglevel", "macs", "numberofpasswordprompts", "port", "serveraliveinterval", "serveralivecountmax", "user",
}

// harmlessSetting reports whether a setting of ssh says nothing of what is executed.
func harmlessSetting(text string) bool {
	m := sshSetting.FindStringSubmatch(text)
	return m != nil && slices.Contains(harmlessSettings, strings.ToLower(m[1]))
}
