package forkcore

import "time"

// Flag is a setting that can be changed while everything runs. Sessions take it over when they are created and keep it.
type Flag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Default     bool   `json:"default"`
	Value       bool   `json:"value"`
	// Set is false while the default is in force.
	Set bool `json:"set"`
}

// FlagAutoBackground moves foreground runs to a worker after a while, as AGENT_AUTO_BACKGROUND_TASKS does.
const FlagAutoBackground = "auto_background_agents"

// Flags lists the flags with their defaults.
func Flags() []Flag {
	return []Flag{{
		Name: FlagAutoBackground, Description: "A foreground turn or agent moves to a worker after FORKYARD_AUTO_BACKGROUND_AFTER. It holds for sessions that are created from now on.",
	}}
}

// AutoBackgroundAfter is after how long a foreground run moves to a worker: 0, never, unless the variable
// AGENT_AUTO_BACKGROUND_TASKS or the flag is on.
func AutoBackgroundAfter(variable, flag bool, after time.Duration) time.Duration {
	if !variable && !flag {
		return 0
	}
	return after
}
