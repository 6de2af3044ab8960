package tidegate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"tidegate.dev/sdk/go/internal/testrouter"
	"tidegate.dev/sdk/go/tidegate"
)

// TestMain runs the router that the examples talk to.
func TestMain(m *testing.M) {
	router, err := testrouter.Start(answerExamples)
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("TIDEGATE_TARGET", router.Target)
	code := m.Run()
	router.Stop()
	os.Exit(code)
}

// The answers that the examples expect.
func answerExamples(turn *testrouter.Turn) {
	switch prompt := turn.Prompt(); {
	case turn.Spec.GetResponseFormat() != nil:
		turn.Answer(`{"name": "Paris", "population": 2100000}`)
	case prompt == "What is the weather in Oslo?":
		turn.Start()
		turn.Call(0, "weather", `{"city": "Oslo"}`)
		turn.Finish(tidegate.FinishToolCalls)
	case strings.HasPrefix(prompt, "{"):
		turn.Answer("It is -3 °C in Oslo.")
	case strings.HasPrefix(prompt, "Translate: "):
		turn.Answer(strings.ToUpper(strings.TrimPrefix(prompt, "Translate: ")))
	default:
		turn.Answer("Air scatters ", "blue light most.")
	}
}

func Example() {
	client, err := tidegate.NewClient("") // TIDEGATE_TARGET
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	turn := client.Chat(ctx, tidegate.User("Why is the sky blue?"), tidegate.MaxOutputTokens(200))
	for event, err := range turn.Events() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(event.GetTextDelta().GetText())
	}
	fmt.Println()
	fmt.Println(turn.FinishReason(), turn.Usage().GetCompletionTokens())
	// Output:
	// Air scatters blue light most.
	// FINISH_REASON_STOP 29
}

func exampleClient() (*tidegate.Client, context.Context) {
	client, err := tidegate.NewClient(os.Getenv("TIDEGATE_TARGET"))
	if err != nil {
		log.Fatal(err)
	}
	return client, context.Background()
}

func ExampleClient_Session() {
	client, ctx := exampleClient()
	defer client.Close()

	session := client.Session(ctx, tidegate.System("You translate."), tidegate.Temperature(0))
	defer session.Close()
	first := session.Chat(ctx, tidegate.User("Translate: one"))
	second := session.Chat(ctx, tidegate.User("Translate: two"))
	for _, turn := range []*tidegate.Turn{first, second} {
		text, err := turn.Text(ctx)
		fmt.Println(text, err)
	}
	// Output:
	// ONE <nil>
	// TWO <nil>
}

func ExampleChatInto() {
	client, ctx := exampleClient()
	defer client.Close()

	type City struct {
		Name       string `json:"name"`
		Population int    `json:"population" description:"Without suburbs."`
	}
	city, err := tidegate.ChatInto[City](ctx, client, tidegate.User("The capital of France?"))
	fmt.Println(city.Name, city.Population, err)
	// Output: Paris 2100000 <nil>
}

func ExampleRunTools() {
	client, ctx := exampleClient()
	defer client.Close()

	type Place struct {
		City string `json:"city"`
	}
	type Weather struct {
		Celsius int `json:"celsius"`
	}
	weather := tidegate.NewTool("weather", "The weather in a city.", func(ctx context.Context, p Place) (Weather, error) {
		if p.City != "Oslo" {
			return Weather{}, tidegate.ToolFailed("no such city")
		}
		return Weather{Celsius: -3}, nil
	})
	text, err := tidegate.RunTools(ctx, client, tidegate.User("What is the weather in Oslo?"), weather).Text()
	fmt.Println(text, err)
	// Output: It is -3 °C in Oslo. <nil>
}

func ExampleError() {
	client, ctx := exampleClient()
	defer client.Close()

	_, err := client.Chat(ctx, tidegate.User("not \xff UTF-8")).Text(ctx)
	if failed, ok := errors.AsType[*tidegate.Error](err); ok {
		fmt.Println(failed.Code, failed.Reason, failed.Retryable, failed.Violations)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Println("too slow")
	}
	// Output: InvalidArgument  false [{spec all texts must be UTF-8}]
}
