// Package chaos holds tests that end, stop, cut and fill up the real thing: the programs as processes, a Redis that writes
// what it acknowledges, and the simulator, which knows what it billed. After each fault a checker looks for what must hold whatever
// happened: every acknowledged message is there once, every run comes to its end, nothing with an effect ran twice, and the ledger
// is what was billed. `make test` runs the short form, `make chaos` the long one (CHAOS_TRIALS, CHAOS_MINUTES, CHAOS_SEED).
package chaos
