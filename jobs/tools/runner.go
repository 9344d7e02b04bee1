package tools

import (
	"context"

	"forkyard/forkcore"
)

// Runner is a Set with the secrets of this process: what the engine calls.
type Runner struct {
	*Set
	// Secrets are values that no stored output may show.
	Secrets []string
}

// Run runs one call in a workspace.
func (r Runner) Run(ctx context.Context, workspace string, mode forkcore.PermissionMode, call forkcore.ToolCall) forkcore.ToolResult {
	return r.Set.Run(ctx, Env{Workspace: workspace, PermissionMode: string(mode), Secrets: r.Secrets}, call)
}
