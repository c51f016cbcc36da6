"""First words of a user's turn, by task kind, that a target goes on with itself."""

from treewise.data.own_prompts.forms import lines

OPENERS: dict[str, tuple[str, ...]] = {
    "knowledge": lines(
        """
        What is the difference between
        What are the main causes of
        Explain how the human
        Explain why the ocean
        Why do some people
        How does a plant
        Who was the first
        When did the
        Where does the word
        Describe the life of
        What are the benefits of
        Is it true that
        What happens when you
        How do scientists measure
        Which planet in our solar system
        What is the role of
        Give a brief overview of the history of
        Explain the concept of supply
        What are some examples of renewable
        How did the ancient Romans
        What is the capital of
        Tell me about the discovery of
        What are the symptoms of
        Define the term
        Compare and contrast the
        How many bones
        What does the theory of
        Why is the sky
        What are the three types of
        How are diamonds
        Describe the process by which
        What is the significance of
        """
    ),
    "reasoning": lines(
        """
        A store sells
        If a train leaves
        A farmer has
        Sarah has twice as many
        A rectangle has a length of
        Tom bought
        There are 24 students
        A bakery sold
        Solve the equation
        What is the probability of
        John is three years older
        How many different ways can
        A car travels at
        If it takes 5 workers
        Find the value of x
        A box contains
        Calculate the area of
        Lisa saves $20
        The sum of two numbers
        What is the next number in the sequence
        A company's profit
        Prove that the
        In a class of 30
        Two friends are
        Simplify the expression
        If all of the
        What is the derivative of
        Maria reads
        A recipe calls for
        The price of a
        """
    ),
    "creative": lines(
        """
        Write a short story about a
        Write a poem about the
        Write a dialogue between
        Create a character who
        Imagine you are a
        Write a song about
        Write the opening of a novel
        Compose a haiku about
        Write a letter from
        I want you to act as a
        Describe a world where
        Write a funny story about
        Write a scene in which
        Tell me a bedtime story about
        Write a monologue for
        Invent a new
        Write a diary entry of
        Write a slogan for a
        Write a screenplay about
        Continue the story: The old
        Write a fantasy story with
        Write a limerick about
        Pretend you are a
        Write a eulogy for
        Write a product description for
        Create a fictional
        Write a speech given by
        Write a fable about
        Rewrite the ending of
        Describe a sunset from
        Write a mystery in which
        You are a detective
        """
    ),
    "structured": lines(
        """
        Write a Python function that
        Write a Python program to
        Write a JavaScript function to
        Write a SQL query to
        Here is a Python function that
        How do I sort a list
        Create an HTML page with
        Write a Java class that
        Write a regular expression that
        Write a bash script that
        Implement a binary
        Given a list of integers, write
        Write a function called
        How can I read a file
        Create a table with the columns
        Write a JSON object that
        Fix the bug in this code:
        What does this code do?
        Write a C program that
        Write unit tests for
        Design a class named
        Write a function to check whether
        How do I connect to a database
        Convert the following list into
        Write a CSS rule that
        Write a recursive function
        Explain the following SQL
        Write a function that takes a string
        Create a dictionary in Python
        Write a program that simulates
        How do I parse
        Write code to find the
        """
    ),
    "instruction": lines(
        """
        Write an email to
        Write a formal letter
        Create a list of
        Give me five tips
        Give me step-by-step instructions
        Write a summary of
        Rewrite the following sentence
        Classify the following
        Edit the following paragraph
        Make a checklist for
        Write a cover letter for
        Generate three ideas for
        Create a lesson plan about
        Write a recipe for
        Write a persuasive essay about
        Explain in simple terms
        Suggest a name for
        How do I clean
        How do I fix
        How can I improve my
        Write a review of
        Create a schedule for
        Plan a trip to
        Write a paragraph about
        Identify the main idea of
        Write a press release about
        Write an outline for
        Create a quiz about
        In exactly three sentences
        Write a blog post about
        List the steps to
        Provide an example of
        Correct the grammar in
        Find a synonym for
        Design a workout
        """
    ),
    "translation": lines(
        """
        Translate the following sentence into Spanish:
        Translate the following sentence into French:
        Translate the following English text into German:
        Translate "Good
        Translate this paragraph to Italian:
        How do you say
        What does the French phrase
        Translate from English to Portuguese:
        Translate the sentence "The
        Translate the following Spanish sentence to English:
        Translate the following French sentence to English:
        Translate the following German sentence to English:
        Translate "I would like
        Translate the word
        What is the Latin
        Translate to Spanish: She
        Translate to French: We
        Translate to German: The children
        Translate to English: Je
        Translate to English: El
        Translate to English: Der
        Translate to English: La
        """
    ),
    "summarization": lines(
        """
        Summarize the following article in one sentence: The
        Summarize the following text: In recent years,
        Summarize this paragraph: Scientists
        Summarize the following passage: The city
        Provide a summary of the following: A new study
        Summarize: The company announced
        Summarize in two sentences: When
        Write a one-sentence summary of this abstract: We
        Summarize the main points of this text: Climate
        Give a short summary of this story: Once
        Summarize the following news report: Police
        Summarize this review: I bought
        Summarize this email: Dear
        Write a headline for this article: The government
        What is the main point of this text? The
        Summarize the plot of
        Summarize the history of
        Summarize the following abstract: This paper
        Shorten this text: The museum
        Summarize the meeting notes: The team
        """
    ),
    "rag": lines(
        """
        Read the passage and answer the question. Passage: The
        Answer the question based on the text below. The town of
        Based on the following paragraph, who
        Context: The river
        Context: In 1923,
        Passage: The bridge was built
        Read the following text. The elephant
        According to the passage below, what
        Use the information in this text to answer: The company
        Given the paragraph: Photosynthesis
        Text: The battle of
        Passage: Marie
        Passage: The university was founded
        Answer using only the context. Context: The island
        Read this story: A fox
        Here is a paragraph about volcanoes.
        Extract the names from this text:
        Here is some information about a hotel:
        Context: The museum opened
        Passage: Honey bees
        """
    ),
    "chat": lines(
        """
        I'm feeling
        Can you help me
        I want to learn
        What should I do
        I have a job interview
        My friend and I
        I'm planning a trip
        What's the best way to
        Do you think that
        I just moved
        Hi! I'm looking for
        Can you recommend a
        I've been thinking about
        I need advice on
        My dog keeps
        What do you think about
        I don't understand why
        Could you explain
        How do you feel about
        I am trying to decide
        Should I buy
        Tell me a joke about
        What is your favorite
        I'm bored and
        My daughter is
        I would like to know
        What are some fun
        Hello, I have a question about
        I recently started
        Why can't I
        How can I make friends
        My boss wants me
        """
    ),
}
