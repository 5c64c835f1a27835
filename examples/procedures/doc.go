// Package procedures holds no code: its YAML files declare commands as procedures, which
// harp agent offers from the folder that its configuration names, and agent.Load in a
// program of your own. docs/procedures.md explains them.
package procedures
