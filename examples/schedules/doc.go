// Package schedules is a folder of schedules, groups and maintenance windows as one keeps them in git: harp schedule apply -f
// examples/schedules makes a dispatcher's match them.
package schedules
