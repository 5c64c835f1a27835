// Package schedules is a folder of schedules, groups and maintenance windows as one keeps them in git: harp schedule apply -f
// examples/schedules makes those of a dispatcher what they say.
package schedules
