package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/cmd/harp/internal/config"
)

// quiet is the log of commands that a person waits for: what went wrong is in
// their error.
var quiet = slog.New(slog.DiscardHandler)

// newLog is the log of a daemon.
func newLog(w io.Writer, format config.Format, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// daemonFlags are those of commands that are configured by a file.
type daemonFlags struct {
	file         string
	check, print bool
}

func (f *daemonFlags) bind(cmd *cobra.Command, byDefault string) {
	cmd.Flags().StringVar(&f.file, "config", byDefault, "the configuration `file`")
	cmd.Flags().BoolVar(&f.check, "check-config", false, "check the file and the files it names, and exit")
	cmd.Flags().BoolVar(&f.print, "print-config", false, "print the configuration with its defaults, and exit")
	cmd.MarkFlagsMutuallyExclusive("check-config", "print-config")
}

// listenPort opens the port that a configuration names.
func listenPort(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w; set another address with listen in the configuration", err)
	}
	return l, nil
}

// printConfig prints a configuration with its defaults.
func (c *cli) printConfig(cfg interface{ YAML() ([]byte, error) }) error {
	if c.format == formatJSON && (c.shape == nil || c.wordless) {
		return invalid("output", "a configuration is YAML")
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(text)
	return err
}

// checked says that a configuration is valid.
func (c *cli) checked(file string) error {
	if c.format == formatJSON {
		return c.printObject(object{{"config", file}, {"ok", true}})
	}
	c.say("%s is valid", file)
	return nil
}

// unreadable makes the error of a file or folder that a field names, and that cannot be read, one of usage.
func unreadable(field string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, harp.ErrInvalid) {
		return invalid(field, "%s", err)
	}
	return err
}

// unreadableConfig is unreadable for a configuration. If it was looked for where nobody said that it is, the error says how to name it.
func (c *cli) unreadableConfig(err error) error {
	flags := c.command.Flags()
	if flags.Changed("config") || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, harp.ErrInvalid) {
		return unreadable("config", err)
	}
	instead := "see harp help configuration"
	if flags.Lookup("dir") != nil {
		instead = "the folder with --dir"
	}
	return plainInvalid("config", "no configuration: %s; name another file with --config, or %s", err, instead)
}
