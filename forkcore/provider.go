package forkcore

// ProviderOutcome is what a look at a Messages API endpoint came to.
type ProviderOutcome string

// The outcomes of a look at an endpoint.
const (
	ProviderOK          ProviderOutcome = "ok"          // it takes the key
	ProviderRefused     ProviderOutcome = "refused"     // it does not take the key
	ProviderUnreachable ProviderOutcome = "unreachable" // no answer, or none in time
	ProviderForeign     ProviderOutcome = "foreign"     // what answered is not this API, or lists no models
	ProviderLimited     ProviderOutcome = "limited"     // it takes no more requests for now
	ProviderFailing     ProviderOutcome = "failing"     // it answered with an error of its own
)

// ProviderCheck is the answer of an endpoint that was asked for its models, which costs no tokens.
type ProviderCheck struct {
	Outcome ProviderOutcome
	// Models is how many models were listed; More: there are further ones.
	Models int
	More   bool
	// Offered reports whether the model that was asked for can be used. Only with ProviderOK.
	Offered bool
	// Detail is the endpoint's or the transport's own text, without the key; empty with ProviderOK.
	Detail string
}
