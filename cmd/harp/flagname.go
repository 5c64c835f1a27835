package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
)

// fieldFlags are the flags of fields that have another name than their flag. Of several it is the one that
// was given.
var fieldFlags = map[string][]string{
	"after.schedule":     {"after"},
	"after.within":       {"within"},
	"calendar.content":   {"calendar"},
	"calendar.event":     {"event"},
	"calendar.zones":     {"zone"},
	"calendar.url":       {"calendar"},
	"cron":               {"cron", "every", "at"},
	"hosts":              {"hosts-file"},
	"labels":             {"schedule-label", "label"},
	"outcomes":           {"outcome"},
	"principal":          {"by"},
	"probe":              {"ping"},
	"procedure":          {"proc"},
	"procedures":         {"proc"},
	"rate_per":           {"rate"},
	"request.labels":     {"label"},
	"retry.attempts":     {"attempts"},
	"retry.backoff":      {"backoff"},
	"retry.on":           {"retry"},
	"schedules":          {"schedule"},
	"share":              {"subset"},
	"states":             {"state"},
	"to":                 {"to", "webhook", "mail"},
	"to.mail.to":         {"mail"},
	"to.webhook.secrets": {"secret"},
	"to.webhook.url":     {"webhook"},
	"types":              {"type"},
	"zones":              {"zone"},
}

// fieldIndex is the place of an element in the name of a field: after[0].schedule.
var fieldIndex = regexp.MustCompile(`\[\d+\]`)

// flagOf is the flag by which a field of a request is given to a command; nil if there is none, as of what a
// file of steps has.
func flagOf(cmd *cobra.Command, field string) *pflag.Flag {
	field, _, _ = strings.Cut(fieldIndex.ReplaceAllString(field, ""), " ") // label env
	for {
		outer, inner, inside := strings.Cut(field, ".")
		names := fieldFlags[field]
		if names == nil {
			names = []string{strings.ReplaceAll(field, "_", "-")}
		}
		flag := givenFlag(cmd, names)
		if flag != nil || !inside || outer != "request" && outer != "batch" && outer != "options" {
			return flag
		}
		field = inner
	}
}

// givenFlag is the first flag with one of these names that was given or, if none was, that the command
// has: of those that all commands have it is only one that was given.
func givenFlag(cmd *cobra.Command, names []string) (first *pflag.Flag) {
	for _, name := range names {
		flag := cmd.Flags().Lookup(name)
		switch {
		case flag == nil:
		case flag.Changed:
			return flag
		case first == nil && cmd.InheritedFlags().Lookup(name) == nil:
			first = flag
		}
	}
	return first
}

// errorText is an error in words, in which a field is called by the flag that gives it.
func (c *cli) errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "harp: ")
	var wrong *harp.FieldError
	if c.command == nil || !errors.As(err, &wrong) {
		return text
	}
	flag := flagOf(c.command, wrong.Field)
	if flag == nil {
		return text
	}
	named := &harp.FieldError{Field: "--" + flag.Name, Message: wrong.Message}
	return strings.Replace(text, wrong.Error(), named.Error(), 1)
}
