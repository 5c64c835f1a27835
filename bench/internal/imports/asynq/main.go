// Command asynq imports github.com/hibiken/asynq and does nothing.
package main

import _ "github.com/hibiken/asynq"

func main() {}
