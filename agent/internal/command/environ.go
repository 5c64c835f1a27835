package command

import (
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// ownPrefix is what the variables begin with that harp sets.
const ownPrefix = "HARP_"

// defaultPath is where programs are looked for.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is the whole environment of a command: little, what the file lets through of
// the agent's own, what it sets, and what harp says of the call.
// The error says that the files are too few to look up its user with.
func (c *Command) environ(call Call, as string, set []string) ([]string, error) {
	env := map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8", "SHELL": "/bin/sh", "HOME": "/"}
	if err := identify(env, as); err != nil {
		return nil, err
	}
	for _, name := range c.passEnv {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for _, s := range set {
		name, v, _ := strings.Cut(s, "=")
		env[name] = v
	}
	env["HARP_JOB"] = call.Job
	env["HARP_ATTEMPT"] = strconv.FormatInt(call.Attempt, 10)
	env["HARP_HOST"] = call.Host
	env["HARP_PROCEDURE"] = c.Doc.Name
	if call.Schedule != "" {
		env["HARP_SCHEDULE"] = call.Schedule
	}
	if !call.FireTime.IsZero() {
		env["HARP_FIRE_TIME"] = call.fireTime()
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list, nil
}

// identify says who the command runs as. A user that cannot be found is not this
// function's to refuse: starting the command does. The error is that of too few files.
func identify(env map[string]string, as string) error {
	u, err := lookup(as)
	switch {
	case err == nil:
		env["HOME"], env["USER"], env["LOGNAME"] = u.HomeDir, u.Username, u.Username
	case proc.IsShort(err):
		return err
	case as != "":
		env["USER"], env["LOGNAME"] = as, as
	}
	return nil
}

// lookup returns a user. Where files are too few to look, which the system's libraries take for that there is no such
// user, the error says so.
func lookup(name string) (*user.User, error) {
	u, err := lookupNow(name)
	if err == nil {
		return u, nil
	}
	if err := proc.CheckFiles(); err != nil {
		return nil, err
	}
	return lookupNow(name)
}

func lookupNow(name string) (*user.User, error) {
	if name == "" {
		return user.Current()
	}
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return user.LookupId(name)
	}
	return user.Lookup(name)
}

// deciding are variables that decide which code a program runs, of the loader and of
// the interpreters and tools that are met most.
var deciding = []string{
	"PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "SHELL",
	"GCONV_PATH", "GLIBC_TUNABLES", "HOSTALIASES", "LOCPATH", "NLSPATH", "RESOLV_HOST_CONF",
	"PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "CLASSPATH",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE",
	"BROWSER", "RSYNC_RSH", "HOME", "XDG_CONFIG_HOME", "TAR_OPTIONS", "MAKEFLAGS", "OPENSSL_CONF", "OPENSSL_MODULES",
}

// decides reports whether a variable decides which code a program runs.
func decides(name string) bool {
	for _, prefix := range []string{"LD_", "DYLD_", "BASH_FUNC_", "PYTHON", "GIT_", "LUA_", "SSH_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(deciding, name)
}
