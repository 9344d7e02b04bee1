// Package sdkcheck has tests alone. They send the same requests to modelsim with the official TypeScript SDK, with the
// official Go SDK and with package anthropic, and compare what each says of the answer: blocks, usage, stop reason,
// errors. The three share no code that reads a stream, so a mistake in one of them, or in the simulator, shows.
//
// The TypeScript SDK is installed from package-lock.json by "make test"; run.mjs drives it.
package sdkcheck
