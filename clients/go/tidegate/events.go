package tidegate

import tidegatev1 "tidegate.dev/sdk/go/tidegate/v1"

// Event is one thing that happened in a turn. Its getters can be chained: `event.GetTextDelta().GetText()` is empty where there is no text.
type Event = tidegatev1.Event

// Started tells where a turn runs.
type Started = tidegatev1.Started

// Usage counts a turn's tokens.
type Usage = tidegatev1.Usage

// FinishReason says why a turn ended.
type FinishReason = tidegatev1.FinishReason

// Why a turn ended.
const (
	FinishUnknown       = tidegatev1.FinishReason_FINISH_REASON_UNSPECIFIED
	FinishStop          = tidegatev1.FinishReason_FINISH_REASON_STOP
	FinishLength        = tidegatev1.FinishReason_FINISH_REASON_LENGTH
	FinishCancelled     = tidegatev1.FinishReason_FINISH_REASON_CANCELLED
	FinishToolCalls     = tidegatev1.FinishReason_FINISH_REASON_TOOL_CALLS
	FinishContentFilter = tidegatev1.FinishReason_FINISH_REASON_CONTENT_FILTER
	FinishBudget        = tidegatev1.FinishReason_FINISH_REASON_BUDGET
)
