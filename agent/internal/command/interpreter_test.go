package command

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
)

// interpret loads a procedure with a command, as the inside of a list in YAML, and
// returns what is wrong with it. It has parameters of many kinds.
func interpret(command, more string) error {
	const text = `x:
  params:
    p: {required: true}
    opt: {}
    dashed: {dash: true, required: true}
    n: {type: int, required: true}
    optn: {type: int}
    word: {enum: [a, b], required: true}
    list: {type: list}
    secret: {type: secret, required: true}
  command: [%s]
%s  dry_run: ["true", "{{.p}}", "{{.opt}}", "-{{.dashed}}", "{{.n}}", "{{.optn}}", "{{.word}}", "{{.list...}}", "{{file .secret}}"]
`
	if more != "" {
		more = "  " + more + "\n"
	}
	_, _, err := parse("f.yaml", fmt.Appendf(nil, text, command, more))
	return err
}

// TestCodeInArgumentsIsRefused: what a caller says is never read as code by a program
// that is known to read code, whatever stands before it.
func TestCodeInArgumentsIsRefused(t *testing.T) {
	for _, command := range []string{
		// A shell's code is its first operand, wherever -c stands.
		`sh, -c, "ls {{.p}}"`, `sh, -c, --, "{{.p}}"`, `bash, -c, -x, "{{.p}}"`, `bash, -xc, "{{.p}}"`, `bash, -cx, "{{.p}}"`,
		`bash, -c, +x, -e, "{{.p}}"`, `bash, -o, pipefail, -c, "{{.p}}"`, `bash, -ceo, pipefail, "{{.p}}"`, `bash, --norc, -c, "{{.p}}"`,
		`bash, --rcfile, /dev/null, -c, "{{.p}}"`, `bash, --rcfile, "{{.p}}", -i`, `bash, "--init-file={{.p}}", -i`, `/usr/bin/dash, [-c, "{{.p}}"]`,
		`sh, "-{{.p}}", x`, `zsh, -c, "{{.p}}"`, `busybox, sh, -c, "{{.p}}"`, `fish, "--command={{.p}}"`, `fish, "--comm={{.p}}"`, `sh, -c, "{{.optn}}", "{{.p}}"`,
		// Its script is a program.
		`sh, "{{.p}}"`, `bash, -x, "{{.p}}"`, `bash, -x, "/srv/{{.p}}"`, `sh, "{{.word}}"`, `sh, "{{file .secret}}"`, `python3, "{{.p}}"`, `perl, "{{.p}}"`, `bash, "{{.list...}}"`,
		`sh, "{{.dashed}}"`, `perl, -w, -T, "{{.p}}"`, `python3, -W, ignore, "{{.p}}"`,
		// Options with code.
		`python3, -c, "{{.p}}"`, `python3.11, "-cprint({{.p}})"`, `python3, -Ic, "{{.p}}"`, `python3, -m, "{{.p}}"`, `perl, -lane, "{{.p}}"`, `perl, -e, "1;", -E, "{{.p}}"`,
		`perl, "-M{{.p}}", -e, "1"`, `perl, -i.bak, -pe, "{{.p}}"`, `ruby, -e, "{{.p}}"`, `ruby, "-r{{.p}}", -e, "1"`, `node, "--eval={{.p}}"`, `node, --eval, "{{.p}}"`, `node, -pe, "{{.p}}"`,
		`node, -r, "{{.p}}", /srv/x.js`, `php, -r, "{{.p}}"`, `php, -d, "auto_prepend_file={{.p}}", /srv/x.php`, `lua5.4, -e, "{{.p}}"`, `Rscript, -e, "{{.p}}"`,
		`awk, "{print {{.p}}}"`, `gawk, -F, ":", "{{.p}}", file`, `awk, -v, "a=b", "{{.p}}"`, `awk, "-vn={{.n}}", "{{.p}}"`, `gawk, -e, "{{.p}}"`, `gawk, --source, "{{.p}}"`, `awk, -f, "{{.p}}"`, `mawk, -f, "{{file .secret}}"`,
		`sed, "s/{{.p}}/x/", file`, `sed, -n, -e, "{{.p}}", file`, `sed, "--expression={{.p}}", file`, `sed, file, -e, "{{.p}}"`, `sed, "-n{{.p}}", file`, `sed, -f, "{{.p}}", file`,
		// Shells on other hosts, and as other users.
		`ssh, host, "{{.p}}"`, `ssh, host, ls, "{{.p}}"`, `ssh, -p, "22", "{{.p}}", ls, --, "{{.p}}"`, `ssh, -o, "ProxyCommand={{.p}}", host`, `ssh, "-oProxyCommand {{.p}}", host`, `ssh, -o, "{{.p}}", host`,
		`ssh, host, -o, "ProxyCommand={{.p}}"`, `ssh, -F, "{{.p}}", host`, `ssh, "{{.dashed}}", ls`, `ssh, "{{.list...}}"`, `scp, -S, "{{.p}}", a, "b:"`, `scp, -o, "ProxyCommand={{.p}}", a, "b:"`,
		`su, -c, "{{.p}}"`, `su, nobody, -c, "{{.p}}"`, `su, "-", nobody, "--command={{.p}}"`, `su, nobody, "{{.p}}"`, `runuser, -u, nobody, --, "{{.p}}"`, `runuser, nobody, -c, "{{.p}}"`,
		// What runs another program: what that is, and what it reads.
		`env, -S, "ls {{.p}}"`, `env, "-Sls {{.p}}"`, `env, "--split-string=ls {{.p}}"`, `env, -i, -S, "sh -c {{.p}}"`, `env, "{{.p}}"`, `env, "LD_PRELOAD={{.p}}", ls`, `env, "{{.p}}=x", ls`, `env, A=1, sh, -c, "{{.p}}"`,
		`env, -u, A, -C, /srv, bash, -c, -x, "{{.p}}"`, `sudo, "{{.p}}"`, `sudo, -u, nobody, "{{.p}}"`, `sudo, -u, "{{.opt}}", ls, "{{.p}}"`, `sudo, "PATH={{.p}}", ls`, `sudo, -n, awk, "{{.p}}"`, `sudo, --user, nobody, --, sed, "{{.p}}"`,
		`doas, -u, nobody, "{{.p}}"`, `nice, -n, "5", "{{.p}}"`, `nice, "-5", awk, "{{.p}}"`, `timeout, -k, "5", "10", "{{.p}}"`, `timeout, "10", ssh, host, "{{.p}}"`, `nohup, "{{.p}}"`, `setsid, -w, "{{.p}}"`, `stdbuf, -oL, awk, "{{.p}}"`,
		`chroot, /srv, "{{.p}}"`, `xargs, -n, "1", "{{.p}}"`, `xargs, sh, -c, --, "{{.p}}"`, `flock, /run/x, -c, "{{.p}}"`, `flock, -w, "5", /run/x, "{{.p}}"`, `watch, "ls {{.p}}"`, `watch, -x, "{{.p}}"`, `script, -c, "{{.p}}", /dev/null`,
		`find, /srv, -name, x, -exec, "{{.p}}", "{}", ";"`, `find, /srv, -exec, ls, "{}", ";", -execdir, sh, -c, "{{.p}}", ";"`, `parallel, "ls {{.p}}"`, `strace, -o, /x, -f, awk, "{{.p}}"`, `/lib64/ld-linux-x86-64.so.2, "{{.p}}"`,
		`docker, exec, box, sh, -c, --, "{{.p}}"`, `docker, exec, box, python3, -c, "{{.p}}"`, `systemd-run, -p, A=1, --, sh, -c, "{{.p}}"`,
		// Programs that run some of their arguments.
		`tar, "--to-command={{.p}}", -xf, a`, `tar, -I, "{{.p}}", -xf, a`, `tar, -xf, a, --use-compress-program, "{{.p}}"`, `tar, "--checkpoint-action={{.p}}", -xf, a`, `rsync, -e, "{{.p}}", a, b`, `rsync, -ae, "{{.p}}", a, b`, `rsync, "--rsh=ssh {{.p}}", a, b`,
		`git, -c, "alias.x={{.p}}", x`, `git, "{{.p}}"`, `make, "A={{.p}}"`, `make, "{{.p}}"`, `make, "--eval={{.p}}"`, `make, -f, "{{.p}}"`, `psql, -c, "{{.p}}"`, `psql, db, --command, "{{.p}}"`, `mysql, -e, "{{.p}}"`, `sqlite3, db, "{{.p}}"`, `vim, -c, "{{.p}}"`, `gdb, -ex, "{{.p}}"`,
	} {
		if err := interpret(command, ""); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "x.command[") || !strings.Contains(err.Error(), "must ") {
			t.Errorf("[%s]: %v", command, err)
		}
	}
}

// TestCodeInStdinIsRefused: a program that is given no code reads it from stdin.
func TestCodeInStdinIsRefused(t *testing.T) {
	for _, command := range []string{`sh`, `bash, -s, x`, `bash, -x`, `sudo, -u, nobody, bash`, `python3`, `python3, "-"`, `perl, -w`, `ssh, host`, `env, sh`, `node`} {
		if err := interpret(command, `stdin: "x {{.p}}"`); !errors.Is(err, harp.ErrInvalid) || !strings.Contains(err.Error(), "x.stdin: must not have a placeholder") {
			t.Errorf("[%s]: %v", command, err)
		}
	}
	for _, command := range []string{`sh, -c, cat`, `python3, ./x.py`, `ssh, host, cat`, `cat`, `sudo, tee, /x`, `perl, -ne, "print"`} {
		if err := interpret(command, `stdin: "x {{.p}}"`); err != nil {
			t.Errorf("[%s]: %v", command, err)
		}
	}
}

// TestArgumentsThatAreNoCodeAreTaken: arguments of code, values of options, and what
// cannot hold code.
func TestArgumentsThatAreNoCodeAreTaken(t *testing.T) {
	for _, command := range []string{
		`sh, -c, 'ls "$1"', sh, "{{.p}}"`, `bash, -euc, 'ls "$@"', --, "{{.list...}}"`, `sh, ./x.sh, "{{.p}}"`, `sh, -c, "exit {{.n}}"`, `sh, -c, "ls {{file .secret}}"`, `bash, -x, ./x.sh, -c, "{{.p}}"`,
		`python3, -u, ./x.py, "{{.p}}"`, `python3, -m, json.tool, "{{.p}}"`, `python3, -c, "pass", "{{.p}}"`, `perl, -ne, print, "{{.p}}"`, `perl, -i.sed, ./x.pl, "{{.p}}"`,
		`awk, -v, "x={{.p}}", "{print x}", "{{.p}}"`, `awk, -f, ./x.awk, "{{.p}}"`, `sed, -e, s/a/b/, "{{.p}}"`, `sed, s/a/b/, "{{.p}}"`, `sed, -n, "{{.n}}p", "{{.p}}"`, `sed, "s/a/{{.word}}/"`,
		`ssh, -p, "{{.n}}", -l, "{{.p}}", "{{.p}}", uptime`, `ssh, -o, "ConnectTimeout={{.n}}", -o, "Port={{.p}}", host, uptime`, `scp, --, "{{.p}}", "host:/x"`, `su, "-", "{{.p}}", -c, id`, `su, "{{.p}}", -c, id`, `runuser, -u, "{{.p}}", --, ls, "{{.p}}"`,
		`env, "A={{.p}}", ls, "{{.p}}"`, `env, -u, A, ls, "{{.p}}"`, `sudo, -u, "{{.p}}", ls, "{{.p}}"`, `sudo, [-u, "{{.opt}}"], ls, "{{.p}}"`, `timeout, "{{.n}}", ls, "{{.p}}"`, `nice, "-{{.n}}", ls, "{{.p}}"`, `xargs, ls, "{{.p}}"`, `flock, "{{.p}}", ls, "{{.p}}"`, `watch, -x, ls, "{{.p}}"`,
		`find, "{{.p}}", -name, "{{.p}}", -exec, ls, "{}", ";"`, `tar, "--use-compress-program=gzip -{{.n}}", "--file={{.p}}", "--directory={{.p}}", --, .`, `rsync, -a, "--bwlimit={{.p}}", "{{.list...}}", --, "{{.p}}", "{{.p}}"`, `make, "-j{{.n}}", "{{.word}}"`, `git, -C, "{{.p}}", pull`,
		`psql, -v, "x={{.p}}", -f, ./x.sql`, `apt-get, install, awk, "{{.p}}"`, `systemctl, restart, node, "{{.p}}"`, `tail, --lines, "{{.n}}", --, "{{.p}}"`, `grep, -e, "{{.p}}", "{{.p}}"`, `./awk.sh, "{{.p}}"`,
	} {
		if err := interpret(command, ""); err != nil {
			t.Errorf("[%s]: %v", command, err)
		}
	}
}
