// Package river does the work with River on PostgreSQL.
package river

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/harpcaller/harp/bench/internal/lab"
)

// ServerRole keeps a PostgreSQL.
const ServerRole = "postgres"

const (
	osUser  = "postgres" // who runs it where this process is root's: it refuses root
	install = "apt-get install postgresql, or your system's package of PostgreSQL 15 or later"
)

// folders are where Debian keeps the programs, the newest last.
func folders() []string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
	return found
}

func daemon(name string) lab.Daemon {
	return lab.Daemon{Name: name, Folders: folders(), Install: install, User: osUser}
}

type serverArg struct {
	Dir string `json:"dir"`
}

type said struct {
	Port int `json:"port"`
}

// RunServer is the Role of that name.
func RunServer(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg serverArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	port, err := lab.FreePort()
	if err != nil {
		return err
	}
	data := filepath.Join(arg.Dir, "data")
	if err := initialise(ctx, l, arg.Dir, data); err != nil {
		return err
	}
	d := daemon("postgres")
	d.Args = []string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", ""}
	for name, value := range map[string]string{
		"ssl": "on", "ssl_cert_file": filepath.Join(arg.Dir, lab.ServerCert),
		"ssl_key_file": filepath.Join(arg.Dir, lab.ServerKey), "ssl_min_protocol_version": "TLSv1.3",
		"fsync": "on", "synchronous_commit": "on", "max_connections": "200", "shared_buffers": "256MB",
	} {
		d.Args = append(d.Args, "-c", name+"="+value)
	}
	d.Ready = func(ctx context.Context) error {
		pool, err := connect(ctx, l, port)
		if err != nil {
			return err
		}
		defer pool.Close()
		return pool.Ping(ctx)
	}
	return d.Run(ctx, func() error { return ready(said{port}) })
}

// initialise makes a cluster that belongs to whom the server runs as.
func initialise(ctx context.Context, l *lab.Lab, dir, data string) error {
	for _, name := range []string{lab.ServerCert, lab.ServerKey} {
		b, err := os.ReadFile(l.Path(name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	if err := lab.Give(dir, osUser); err != nil {
		return err
	}
	path, err := daemon("initdb").Find()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--no-locale")
	if err := daemon("initdb").As(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// start starts a PostgreSQL and connects to it.
func start(ctx context.Context, l *lab.Lab, parts *lab.Closers) (*pgxpool.Pool, error) {
	if _, err := daemon("postgres").Find(); err != nil {
		return nil, err
	}
	dir, err := l.Fresh("postgres")
	if err != nil {
		return nil, err
	}
	var s said
	c, err := l.Start(ctx, ServerRole, serverArg{dir}, &s)
	if err != nil {
		return nil, err
	}
	parts.Add(c.Close)
	pool, err := connect(ctx, l, s.Port)
	if err != nil {
		return nil, err
	}
	parts.Add(func() error { pool.Close(); return nil })
	return pool, nil
}

// connections is how many the pool has.
const connections = 64

func connect(ctx context.Context, l *lab.Lab, port int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=require", port))
	if err != nil {
		return nil, err
	}
	if cfg.ConnConfig.TLSConfig, err = l.PeerTLS(); err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, cfg)
}
